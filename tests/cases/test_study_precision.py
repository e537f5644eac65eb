"""The case studies' budgets at their hardest: long sums, terms that cancel, ties, wrong by little."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hillclimb.harness.case.contract import Contract, Problem, Tensors
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.duel.parity import expected_outputs, worst_error
from hillclimb.harness.studies.study import choose_cases
from tests.cases.workspace import CASES, load_case

Cheat = Callable[[Tensors], Tensors]

LONG = 32768
"""Longest sums of the contracts."""

SUMS = {
    "iv_dependent_matmul": {"m": 96, "n": 96, "k": LONG},
    "matmul_leakyrelu": {"m": 96, "n": 96, "k": LONG, "leaky_relu": True, "negative_slope": 0.2},
    "matmul_triton1": {"m": 96, "n": 96, "k": LONG},
    "triton_matmul": {"m": 96, "n": 96, "k": LONG, "dtype": "float16", "transposed": False},
    "triton_matmul, float8": {"m": 96, "n": 96, "k": LONG, "dtype": "float8_e4m3fn", "transposed": False},
}  # fmt: skip

SHORT_OF = 64
"""Products left out of such a sum; of float8, whose sums tensor cores cut short, twice as many."""


def opened(name: str) -> tuple[Contract, float]:
    """A case's contract and its error budget."""
    (study,) = choose_cases(CASES, None, name.split(",")[0])
    case, contract = load_case(study.folder, TORCH_DTYPES)
    return contract, case.settings.gate.error_budget


def shares(name: str, problem: Problem, cheat: Callable[[Contract, Tensors], Tensors]) -> dict[str, float]:
    """Errors of what the cheat makes of inputs, as shares of the budget, by distribution."""
    contract, multiples = opened(name)
    found = {}
    for distribution in contract.distributions:
        inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(11))
        expected = expected_outputs(contract, problem, inputs, multiples)
        assert worst_error(contract.attainable(problem, inputs), expected) <= 1, distribution
        found[distribution] = worst_error(cheat(contract, inputs), expected)
    return found


@pytest.mark.slow(6)
@pytest.mark.parametrize("name", SUMS)
def test_the_end_of_a_long_sum_is_noticed_where_it_is_left_out(name: str) -> None:
    def left_out(contract: Contract, inputs: Tensors) -> Tensors:
        a = inputs["a"].clone()
        a[:, LONG - SHORT_OF * (2 if "float8" in name else 1) :] = 0
        return contract.attainable(SUMS[name], {**inputs, "a": a})

    found = shares(name, SUMS[name], left_out)
    _expect_noticed(found)


@pytest.mark.slow(9)
@pytest.mark.parametrize("name", [name for name in SUMS if "float8" not in name])
def test_operands_of_float8_are_noticed_in_a_long_sum(name: str) -> None:
    def narrowed(contract: Contract, inputs: Tensors) -> Tensors:
        rough = {
            key: _scaled(inputs[key], dim, lambda t: t.to(torch.float8_e4m3fn).to(t.dtype))
            for key, dim in (("a", 1), ("b", 0))
        }
        return contract.attainable(SUMS[name], rough)

    _expect_noticed(shares(name, SUMS[name], narrowed))


def _expect_noticed(found: dict[str, float]) -> None:
    """Many times over, where terms cancel: a sum that grows with every term hides 0.2 % in bfloat16's rounding."""
    assert min(found["normal"], found["wide"]) > 2, found


def _scaled(t: torch.Tensor, dim: int, rounded: Cheat) -> torch.Tensor:
    """Rounded in units of a power of two of each row's own, as whoever cheats well does it."""
    unit = torch.exp2(t.float().abs().amax(dim, keepdim=True).log2().floor() - 6).to(t.dtype)
    return rounded(t / unit) * unit


@pytest.mark.slow(6, but=["4096"])
@pytest.mark.parametrize("k", [4096, LONG])
def test_a_slope_that_is_three_percent_off_is_noticed(k: int) -> None:
    problem = {"m": 96, "n": 96, "k": k, "leaky_relu": True, "negative_slope": 0.01}

    def steeper(contract: Contract, inputs: Tensors) -> Tensors:
        return contract.attainable({**problem, "negative_slope": 0.0103}, inputs)

    found = shares("matmul_leakyrelu", problem, steeper)
    assert min(found.values()) > 1, found


def _turned_in_halves(contract: Contract, inputs: Tensors) -> Tensors:
    """Rotary embedding with every product rounded to bfloat16."""
    cos, sin = (inputs[name][None, :, None, :].bfloat16() for name in ("cos", "sin"))
    made = {}
    for name, made_of, sense in (
        ("q_rotated", "q", 1), ("k_rotated", "k", 1), ("dq", "dq_rotated", -1), ("dk", "dk_rotated", -1)
    ):  # fmt: skip
        x1, x2 = inputs[made_of].chunk(2, dim=-1)
        made[name] = torch.cat([x1 * cos - x2 * (sense * sin), x2 * cos + x1 * (sense * sin)], dim=-1)
    return made


def _expanded_in_halves(contract: Contract, inputs: Tensors) -> Tensors:
    """LoRA expansion with every product rounded to bfloat16, then summed in float32."""
    adapter_of = inputs["adapter_of"].long()
    products = inputs["weights"][adapter_of.clamp_min(0)] * inputs["x"][:, None]
    total = products.float().sum(dim=2).masked_fill_((adapter_of < 0)[:, None], 0)
    return {"out": (total + inputs["base"].float()).bfloat16()}


def _merged_in_halves(contract: Contract, inputs: Tensors) -> Tensors:
    """Blocks of attention merged by weights in float16, products and sums in float32."""
    counts = (inputs["lengths"].long() + 255) // 256
    behind = torch.arange(inputs["lse"].shape[2]) >= counts[:, None, None]
    partial = inputs["partial"].masked_fill(behind[..., None], 0)
    weights = inputs["lse"].masked_fill(behind, -float("inf")).softmax(dim=2).half().float()
    return {"out": (partial * weights[..., None]).sum(dim=2).half()}


@pytest.mark.slow(2)
@pytest.mark.parametrize(
    ("name", "problem", "cheat"),
    [
        ("fast_rope_embedding", "medium_2x1024x12x4x64", _turned_in_halves),
        ("lora_expand_gemv", "crowded_41x16x48", _expanded_in_halves),
        ("flash_decode2_llama", "medium_64x32x32x64", _merged_in_halves),
        ("flash_decode2_phi", "medium_64x32x32x112", _merged_in_halves),
    ],
)
def test_products_in_half_of_the_bits_are_noticed(
    name: str, problem: str, cheat: Callable[[Contract, Tensors], Tensors]
) -> None:
    contract, _ = opened(name)
    found = shares(name, contract.problems[problem], cheat)
    assert sum(share > 1 for share in found.values()) >= 2, found


def test_a_tie_is_rounded_to_a_neighbour_of_its_own() -> None:
    """2.5 is 2 or 3, and neither 1 nor 4."""
    contract, multiples = opened("quantize_kv_transform")
    problem = contract.problems["wide_37x5x256"]
    inputs = contract.inputs(problem, "halves", torch.Generator().manual_seed(11))
    expected = expected_outputs(contract, problem, inputs, multiples)
    exact = expected.reference["q"]
    ties = exact != exact.round()
    assert 0.2 < ties.double().mean() < 0.8
    others = {"scales": expected.reference["scales"]}
    for below in (exact.floor(), exact.ceil()):
        assert worst_error({"q": below, **others}, expected) <= 1
    for off in (exact.floor() - 1, exact.ceil() + 1):
        assert worst_error({"q": torch.where(ties, off, exact), **others}, expected) > 1
