"""What kernels of a session do honestly and what they save by, near the limits of its contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from hillclimb.harness.case.contract import Problem, Tensors
from hillclimb.harness.case.contracts.llama.model import Llama, LlamaShape
from hillclimb.harness.case.contracts.llama.session import LlamaSession

SHAPE = LlamaShape(layers=3, hidden=128, heads=4, kv_heads=2, ffn=256, vocab=600, head_dim=32)
NARROW = replace(SHAPE, layers=2, hidden=64, ffn=128, head_dim=16)
"""For many calls."""
DEEP = replace(NARROW, layers=12)

ROUNDING, APART = 0.006, 1.0
"""By how much tokens' weights differ where bfloat16 hardly tells which is the best, and where it does."""

READ = {"batch": 2, "context": 7, "prompt": 33, "tokens": 1}
CHAT = {"batch": 4, "context": 0, "prompt": 40, "tokens": 16}
DECODE = {"batch": 1, "context": 40, "prompt": 1, "tokens": 128}


Kernel = Callable[[LlamaShape, Tensors], Llama]
"""Makes one of a model's weights."""

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of [..., in] and [out, in]."""


def session(of_shape: LlamaShape) -> LlamaSession:
    """A contract that audits every call."""

    class Session(LlamaSession):
        shape = of_shape
        audited_share = 1.0
        problems: dict[str, Problem] = {}  # noqa: RUF012

    torch.set_num_threads(1)
    return Session()


def made(contract: LlamaSession, problem: Problem, inputs: Tensors, model: Llama) -> Tensors:
    """What a kernel puts out that computes as the model does."""
    found = contract._made(problem, inputs, model)
    return {name: found[name].to(spec.dtype) for name, spec in contract.outputs(problem).items()}


def worst(errors: Tensors) -> float:
    return max(float(share.max()) for share in errors.values())


def call(shape: LlamaShape, problem: Problem, seed: int, kernel: Kernel) -> Tensors:
    """The errors of one kernel in one call."""
    contract, generator = session(shape), torch.Generator().manual_seed(seed)
    weights = contract.parameters(generator)
    inputs = contract.inputs(problem, "normal", generator)
    outputs = made(contract, problem, inputs, kernel(shape, weights))
    return contract.errors(problem, {**inputs, **weights}, outputs)


def plain(shape: LlamaShape, weights: Tensors) -> Llama:
    return Llama.of(shape, weights, torch.bfloat16)


def with_norms_folded(shape: LlamaShape, weights: Tensors) -> Llama:
    folded = dict(weights)
    for norm, names in (("attention_norm", "qkv"), ("mlp_norm", ("gate", "up"))):
        for name in names:
            folded[name] = (weights[name].float() * weights[norm].float()[:, None]).bfloat16()
        folded[norm] = torch.ones_like(weights[norm])
    return plain(shape, folded)


def with_last_norm_folded(shape: LlamaShape, weights: Tensors) -> Llama:
    """A head of its own, which has the last norm's weights in it."""
    head = weights["embedding" if shape.tied else "lm_head"]
    folded = (head.float() * weights["norm"].float()).bfloat16()
    changed = {**weights, "lm_head": folded, "norm": torch.ones_like(weights["norm"])}
    return plain(replace(shape, tied=False), changed)


@pytest.mark.parametrize("shape", [SHAPE, replace(SHAPE, tied=False)], ids=["tied", "untied"])
@pytest.mark.parametrize("problem", [READ, CHAT, DECODE], ids=["read", "chat", "decode"])
def test_a_last_norm_folded_into_the_head_passes(shape: LlamaShape, problem: Problem) -> None:
    for seed in range(4):
        assert worst(call(shape, problem, seed, with_last_norm_folded)) <= 1


def in_int8(x: torch.Tensor) -> torch.Tensor:
    """Whole multiples of a unit of each row's own."""
    unit = x.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
    return (x / unit).round() * unit


def in_fp8(x: torch.Tensor) -> torch.Tensor:
    unit = x.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 448
    return (x / unit).to(torch.float8_e4m3fn).float() * unit


def w8a8(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.linear(in_int8(x), in_int8(weight))


def smooth_w8a8(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """SmoothQuant, Xiao et al., arXiv:2211.10438: channels that are large in one operand are made smaller there."""
    large, others = x.abs().amax((0, 1)).clamp_min(1e-9), weight.abs().amax(0).clamp_min(1e-9)
    scale = (large / others).sqrt()
    return w8a8(x / scale, weight * scale)


def fp8_activations(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.linear(in_fp8(x), weight)


def that_reads_by(product: Product) -> Kernel:
    """Makers of kernels that read a prompt so, and make tokens as they should."""

    class Reader(Llama):
        def _linear(self, x: torch.Tensor, name: str, layer: int) -> torch.Tensor:
            if x.shape[1] == 1:
                return super()._linear(x, name, layer)
            return product(x.float(), self.weights[name][layer].float()).to(x.dtype)

    return lambda shape, weights: Reader.of(shape, weights, torch.bfloat16)


@pytest.mark.parametrize("problem", [READ, CHAT], ids=["read", "chat"])
@pytest.mark.parametrize("product", [w8a8, smooth_w8a8, fp8_activations])
def test_a_prompt_read_in_eight_bits_shows_in_the_cache(problem: Problem, product: Product) -> None:
    for seed in range(3):
        errors = call(SHAPE, problem, seed, that_reads_by(product))
        assert min(float(errors[name].max()) for name in ("keys", "values")) > 1
        assert worst(call(SHAPE, problem, seed, that_reads_by(functional.linear))) <= 1


def test_a_prompt_read_in_eight_bits_shows_before_many_tokens_that_are_not() -> None:
    problem = {"batch": 1, "context": 0, "prompt": 16, "tokens": 256}
    for seed in range(3):
        errors = call(SHAPE, problem, seed, that_reads_by(smooth_w8a8))
        assert min(float(errors[name].max()) for name in ("keys", "values")) > 1
        assert worst(call(SHAPE, problem, seed, that_reads_by(functional.linear))) <= 1


LONG_PROMPT = {"batch": 1, "context": 0, "prompt": 60, "tokens": 32}


@pytest.mark.parametrize("seed", [53, 57, 68, 77])
def test_positions_that_read_one_prompt_have_errors_in_common_and_pass(seed: int) -> None:
    assert worst(call(DEEP, LONG_PROMPT, seed, plain)) <= 1


@pytest.mark.parametrize("context", [0, 9])
def test_a_prompt_that_all_rows_share_may_be_read_once_for_all(context: int) -> None:
    problem = {"batch": 32, "context": context, "prompt": 20, "tokens": 1}
    contract = session(replace(SHAPE, layers=2))
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        weights = contract.parameters(generator)
        drawn = contract.inputs({**problem, "batch": 1}, "normal", generator)
        once = made(contract, {**problem, "batch": 1}, drawn, plain(contract.shape, weights))
        inputs, outputs = (
            {name: x.repeat_interleave(32, x.ndim // 4) for name, x in some.items()} for some in (drawn, once)
        )
        assert worst(contract.errors(problem, {**inputs, **weights}, outputs)) <= 1


class SecondBest(Llama):
    """It takes the second best token, and gives it the best one's logit and a little more."""

    def logits(self, *read: object) -> torch.Tensor:
        logits = super().logits(*read).float()  # type: ignore[arg-type]
        best = logits.topk(2, -1)
        swapped = best.values.flip(-1) + torch.tensor([0.0, 1e-4])
        return logits.scatter(-1, best.indices, swapped)


def with_near_ties(weights: Tensors, spread: float, generator: torch.Generator) -> Tensors:
    """Of every token there are nine others that differ by so much, relative."""
    rows = weights["embedding"][: NARROW.vocab // 10].float().repeat(10, 1)
    changed = rows * (1 + spread * torch.randn(rows.shape, generator=generator))
    return {**weights, "embedding": changed.bfloat16()}


def token_shares(tokens: int, seed: int, count: int, spread: float, kernel: Kernel) -> Iterator[Tensors]:
    """The errors in so many calls with the same weights."""
    contract, generator = session(NARROW), torch.Generator().manual_seed(seed)
    problem = {"batch": 1, "context": 0, "prompt": 1, "tokens": tokens}
    weights = with_near_ties(contract.parameters(generator), spread, generator)
    for _ in range(count):
        inputs = contract.inputs(problem, "normal", generator)
        outputs = made(contract, problem, inputs, kernel(NARROW, weights))
        yield contract.errors(problem, {**inputs, **weights}, outputs)


def second_best(shape: LlamaShape, weights: Tensors) -> Llama:
    return SecondBest.of(shape, weights, torch.bfloat16)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [plain, with_norms_folded])
def test_near_ties_of_few_tokens_pass(tokens: int, kernel: Kernel) -> None:
    for seed in range(6):
        shares = token_shares(tokens, seed, 15, ROUNDING, kernel)
        assert max(float(errors["tokens"].max()) for errors in shares) <= 1


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_the_second_best_token_is_refused(tokens: int) -> None:
    """In one of four calls, which is what a gate has of each problem, where ties are as rare as drawn weights have."""
    for seed in range(6):
        shares = token_shares(tokens, seed, 4, APART, second_best)
        assert max(float(errors["tokens"].max()) for errors in shares) > 1


def test_the_second_best_of_near_ties_is_refused_in_the_mean_of_many() -> None:
    for seed in range(3):
        (errors,) = token_shares(256, seed, 1, 3 * ROUNDING, second_best)
        assert float(errors["tokens"].max()) > 1
        (errors,) = token_shares(256, seed, 1, 3 * ROUNDING, plain)
        assert worst(errors) <= 1
