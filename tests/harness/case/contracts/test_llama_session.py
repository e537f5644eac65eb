"""What a session's contract takes and refuses, for computations that NumPy cannot make."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.case.contracts.llama.head_audit import HeadAudit
from hillclimb.harness.case.contracts.llama.model import LINEARS, Llama, LlamaShape, seeded_weights
from hillclimb.harness.case.contracts.llama.scale_audit import scales_of
from hillclimb.harness.case.contracts.llama.session import LlamaSession

SHAPE = LlamaShape(layers=3, hidden=128, heads=4, kv_heads=2, ffn=256, vocab=600, head_dim=32)

PROBLEMS = {
    "one": {"batch": 1, "context": 40, "prompt": 1, "tokens": 96},
    "many": {"batch": 8, "context": 0, "prompt": 5, "tokens": 24},
    "read": {"batch": 2, "context": 7, "prompt": 33, "tokens": 1},
}
LONG = ("one", "many")

Change = Callable[[Tensors], None]


class Session(LlamaSession):
    shape = SHAPE
    audited_share = 1.0
    problems = PROBLEMS


class Computed(LlamaSession):
    """A kernel: the contract's own computation, with weights of its own."""

    shape = SHAPE
    problems = PROBLEMS

    def outputs_of(self, name: str, inputs: Tensors, dtype: torch.dtype) -> Tensors:
        problem = self.problems[name]
        weights = {key: inputs[key] for key in (*self.shape.weight_shapes(), "frequencies")}
        found = self._made(problem, inputs, Llama.of(self.shape, weights, dtype))
        return {key: found[key].to(spec.dtype) for key, spec in self.outputs(problem).items()}


def worst(
    name: str,
    seed: int,
    dtype: torch.dtype,
    change: Change | None = None,
    contract: LlamaSession | None = None,
    computed: Computed | None = None,
) -> float:
    """The largest share of the budget that a computation with changed weights has."""
    contract, generator = contract or Session(), torch.Generator().manual_seed(seed)
    weights = contract.parameters(generator)
    problem = contract.problems[name]
    inputs = contract.inputs(problem, "normal", generator)
    changed = {key: weight.clone() for key, weight in weights.items()}
    if change is not None:
        change(changed)
    outputs = (computed or Computed()).outputs_of(name, {**inputs, **changed}, dtype)
    errors = contract.errors(problem, {**inputs, **weights}, outputs)
    return max(float(share.max()) for share in errors.values())


def scaled(name: str, layer: int, by: float = 0.98) -> Change:
    def change(weights: Tensors) -> None:
        weights[name][layer] *= by

    return change


def rounded(names: tuple[str, ...], levels: int, group: int = 0) -> Change:
    """Whole multiples of a unit of each row's own, or of so many elements of a row's."""

    def change(weights: Tensors) -> None:
        for name in names:
            weight = weights[name].float()
            parts = weight.view(-1, group or weight.shape[-1])
            unit = parts.abs().amax(-1, keepdim=True) / levels
            weights[name] = ((parts / unit).round() * unit).view(weight.shape).to(weights[name].dtype)

    return change


def in_fp8(weights: Tensors) -> None:
    head = weights["embedding"].float()
    unit = head.abs().amax(-1, keepdim=True) / 448
    weights["embedding"] = ((head / unit).to(torch.float8_e4m3fn).float() * unit).bfloat16()


def without_layer(weights: Tensors) -> None:
    weights["o"][1], weights["down"][1] = 0, 0


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_right_computations_pass(name: str, dtype: torch.dtype) -> None:
    shares = [worst(name, seed, dtype) for seed in range(6)]
    assert max(shares) <= 0.8


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("change", [in_fp8, without_layer, rounded(("embedding",), 31)])
def test_a_wrong_computation_does_not(name: str, change: Change) -> None:
    assert worst(name, 1, torch.bfloat16, change) > 1


@pytest.mark.parametrize("by", [0.98, 1.02])
@pytest.mark.parametrize(
    ("name", "matrix"),
    [("many", matrix) for matrix in LINEARS]
    # beside forty given keys the scale of a hundred new ones hardly shows
    + [("one", matrix) for matrix in LINEARS if matrix != "k"],
)
def test_a_scaled_matrix_does_not(name: str, matrix: str, by: float) -> None:
    assert worst(name, 2, torch.bfloat16, scaled(matrix, 1, by)) > 1


@pytest.mark.parametrize("name", LONG)
def test_weights_of_eight_bits_do_not(name: str) -> None:
    assert worst(name, 3, torch.bfloat16, rounded((*LINEARS, "embedding"), 127)) > 1


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("group", [16, 64, 128])
def test_weights_of_eight_bits_in_groups_do_not(name: str, group: int) -> None:
    for matrices in (LINEARS, ("embedding",)):
        assert worst(name, 3, torch.bfloat16, rounded(matrices, 127, group)) > 1


DEEP = {
    "decode": {"batch": 1, "context": 64, "prompt": 1, "tokens": 64},
    "read": {"batch": 1, "context": 0, "prompt": 96, "tokens": 1},
}


class DeepSession(Session):
    shape = LlamaShape(layers=16, hidden=128, heads=4, kv_heads=2, ffn=256, vocab=1000, head_dim=32)
    problems = DEEP


class DeepComputed(Computed):
    shape = DeepSession.shape
    problems = DEEP


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("group", [32, 64])
def test_nor_do_they_in_small_groups_where_nothing_else_is_rounded(name: str, group: int) -> None:
    for seed in range(2):
        change = rounded(LINEARS, 127, group)
        assert worst(name, seed, torch.float32, change, DeepSession(), DeepComputed()) > 1
        assert worst(name, seed, torch.bfloat16, None, DeepSession(), DeepComputed()) < 0.9


def outputs_and_errors(change: Callable[[Tensors], None]) -> Tensors:
    """Of an exact computation of "one" whose outputs are changed."""
    contract, generator = Session(), torch.Generator().manual_seed(9)
    weights = contract.parameters(generator)
    inputs = contract.inputs(PROBLEMS["one"], "normal", generator)
    outputs = Computed().outputs_of("one", {**inputs, **weights}, torch.float32)
    change(outputs)
    return contract.errors(PROBLEMS["one"], {**inputs, **weights}, outputs)


def test_a_token_that_is_not_the_best_is_rejected_whatever_the_logits_say() -> None:
    def nudge(outputs: Tensors) -> None:
        """The fourth best token, lifted to the top by as little as it takes."""
        logits = outputs["logits"]
        order = logits.argsort(2, descending=True)
        chosen = order[..., 3:4]
        top = logits.amax(2, keepdim=True)
        logits.scatter_(2, chosen, top + 1e-3)
        outputs["tokens"].copy_(chosen[..., 0])

    assert float(outputs_and_errors(nudge)["tokens"].max()) > 1


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (
            {"batch": 1, "context": -1, "prompt": 1, "tokens": 1},
            "context is -1; give a whole number, 0 or more",
        ),
        ({"batch": 1, "context": 0, "prompt": 0, "tokens": 1}, "prompt is 0"),
        ({"batch": 1, "context": 0, "prompt": 1, "tokens": 0}, "tokens is 0"),
        ({"batch": 1, "context": 0, "tokens": 1}, "give batch, context, prompt, tokens"),
        ({"batch": 1, "contxt": 0, "context": 0, "prompt": 1, "tokens": 1}, "contxt"),
        ({"batch": 1, "context": 0.5, "prompt": 1, "tokens": 1}, "context is 0.5"),
    ],
)
def test_what_is_no_problem_is_told(problem: dict[str, int], says: str) -> None:
    wrong = type("Wrong", (Session,), {"problems": {"one": problem}})
    with pytest.raises(ValueError, match=says):
        wrong()


@pytest.mark.parametrize(
    ("size", "says"), [("kv_heads", "heads is 4"), ("head_dim", "head_dim is 3"), ("vocab", "vocab is 0")]
)
def test_what_is_no_shape_is_told(size: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(SHAPE, **{size: {"kv_heads": 3, "head_dim": 3, "vocab": 0}[size]})


def head_error(change: Change | None, dtype: torch.dtype) -> float:
    """What a head like a trained model's leaves unexplained of logits that are made with a changed one."""
    generator = torch.Generator().manual_seed(5)
    head = (torch.randn(4000, 256, generator=generator) / 16).bfloat16()
    changed = {"embedding": head.clone()}
    if change is not None:
        change(changed)
    audit = HeadAudit.of(head.float())
    assert audit is not None
    logits = torch.randn(20, 256, generator=generator).to(dtype) @ changed["embedding"].to(dtype).T
    return audit.error(logits.double())


def test_a_head_of_fewer_bits_shows_whatever_the_layers_err() -> None:
    rounding = head_error(None, torch.bfloat16)
    assert head_error(None, torch.float32) < 0.01 * rounding
    for change in (in_fp8, rounded(("embedding",), 127), rounded(("embedding",), 127, 64)):
        for dtype in (torch.bfloat16, torch.float32):
            assert head_error(change, dtype) > 2 * rounding


def test_a_small_vocabulary_has_no_head_to_look_at() -> None:
    assert HeadAudit.of(torch.randn(100, 80)) is None


def test_a_folded_weight_in_bfloat16_passes() -> None:
    """Half of a unit in the last place of every weight, in the same direction: what an honest kernel may do."""

    def fold(weights: Tensors) -> None:
        for name in ("q", "k", "v"):
            weights[name] = (weights[name].float() * weights["attention_norm"].float()[:, None]).bfloat16()
        for name in ("gate", "up"):
            weights[name] = (weights[name].float() * weights["mlp_norm"].float()[:, None]).bfloat16()
        weights["attention_norm"].fill_(1)
        weights["mlp_norm"].fill_(1)

    for seed in range(4):
        assert worst("one", seed, torch.bfloat16, fold) < 1


@pytest.mark.parametrize("name", LONG)
def test_a_model_does_not_repeat_what_it_reads(name: str) -> None:
    contract, generator = DeepSession(), torch.Generator().manual_seed(6)
    problem = PROBLEMS[name]
    weights, inputs = contract.parameters(generator), contract.inputs(problem, "normal", generator)
    tokens = contract.reference(problem, {**inputs, **weights})["tokens"]
    read = torch.cat(
        [inputs["prompt"][:, -1:], (tokens + inputs["shifts"])[:, :-1] % contract.shape.vocab], 1
    )
    assert float((tokens == read).double().mean()) < 0.2
    assert len(tokens.unique()) > 0.3 * min(tokens.numel(), contract.shape.vocab)


def test_the_prompt_is_read_as_one_token_after_another() -> None:
    """A session's outputs do not depend on where its prompt ends and its tokens begin."""
    weights = seeded_weights(SHAPE, torch.float64, torch.Generator().manual_seed(4))
    model = Llama.of(SHAPE, weights, torch.float64)
    contract = Session()
    inputs = contract.inputs(
        {"batch": 2, "context": 6, "prompt": 9, "tokens": 1}, "normal", torch.Generator()
    )
    whole, parts = (contract._empty_cache(inputs, torch.float64) for _ in range(2))
    together = model.logits(inputs["prompt"], whole, 6, 9)
    single = [model.logits(inputs["prompt"][:, i : i + 1], parts, 6 + i, 1) for i in range(9)]
    torch.testing.assert_close(together, torch.cat(single, 1))
    torch.testing.assert_close(whole.keys, parts.keys)


def test_the_last_cached_position_is_the_last_that_is_read() -> None:
    contract = Session()
    problem = {"batch": 1, "context": 3, "prompt": 2, "tokens": 4}
    inputs = contract.inputs(problem, "normal", torch.Generator())
    assert inputs["keys"].shape == (3, 1, 2, 3 + 2 + 3, 32)
    assert bool((inputs["keys"][:, :, :, 3:] == 0).all()) and bool((inputs["keys"][:, :, :, :3] != 0).any())


def test_the_work_is_every_weight_once_a_token_where_no_cache_holds_them() -> None:
    class Large(LlamaSession):
        shape = LlamaShape(layers=16, hidden=2048, heads=32, kv_heads=8, ffn=8192, vocab=128256, head_dim=64)
        problems = PROBLEMS

    once = 2 * Large.shape.streamed_weights
    assert once == pytest.approx(2471e6, rel=1e-3)
    one, two = (
        Large().work({"batch": 1, "context": 128, "prompt": 1, "tokens": tokens}).bytes for tokens in (1, 2)
    )
    assert once < one < 1.01 * once
    assert two - one == pytest.approx(once, rel=0.03)


def test_neighbours_are_problems() -> None:
    contract = Session()
    for problem in PROBLEMS.values():
        for other in contract.vary(problem, random.Random(1)):
            inputs = contract.inputs(other, "normal", torch.Generator())
            assert inputs["prompt"].shape == (other["batch"], other["prompt"])


def test_every_scale_once() -> None:
    assert len(set(scales_of(3, has_context=True))) == 3 * 6 + 1
    assert len(set(scales_of(3, has_context=False))) == 3 * 4 + 1
