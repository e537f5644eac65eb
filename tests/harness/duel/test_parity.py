"""What is right: floats, whole numbers, infinities, and what a rule of the contract's own says is."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case.contract import Contract, Problem, Spec, Tensors, Work
from hillclimb.harness.case.operands import infinities
from hillclimb.harness.channel.layout import lay_out
from hillclimb.harness.channel.memory import HostMemory
from hillclimb.harness.duel.parity import (
    check_slot,
    describe_error,
    error_shares,
    expected_outputs,
    worst_error,
)
from hillclimb.harness.duel.process.arena import Arena, shapes_of
from hillclimb.harness.errors import CandidateFault, CaseError

INF = float("inf")


@dataclass
class Given(Contract):
    """A contract of one output, whose reference and attainable result are what is given."""

    spec: Spec
    exact: torch.Tensor
    plain: torch.Tensor
    unit: torch.Tensor | None = None
    problems: dict[str, Problem] = field(default_factory=lambda: {"p": {}})
    distributions: tuple[str, ...] = ("normal",)

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        return {}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": self.spec}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": self.exact}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": self.plain}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        return super().scale(problem, inputs, reference) if self.unit is None else {"y": self.unit}

    def work(self, problem: Problem) -> Work:
        return Work(flops=1, bytes=1)


def share(contract: Contract, output: torch.Tensor, multiples: float = 4.0) -> float:
    return worst_error({"y": output}, expected_outputs(contract, {}, {}, multiples))


def whole(exact: torch.Tensor, plain: torch.Tensor | None = None, **rule: float) -> Given:
    spec = Spec(tuple(exact.shape), exact.dtype, **rule)  # type: ignore[arg-type]
    return Given(spec, exact.to(torch.int64), exact if plain is None else plain)


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from([1, -1, 2, 1 << 20]))
def test_keys_of_64_bits_are_compared_as_whole_numbers(key: int, off: int) -> None:
    """float64 holds 53 bits: keys one apart are the same there."""
    other = key + off
    exact = torch.tensor([key, 5], dtype=torch.int64)
    assert share(whole(exact), exact.clone()) == 0
    if -(2**63) <= other < 2**63:
        assert share(whole(exact), torch.tensor([other, 5])) == INF


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool])
def test_indices_counts_and_masks_are_exact(dtype: torch.dtype) -> None:
    exact = torch.randint(0, 2, (10_000,), generator=torch.Generator().manual_seed(0)).to(dtype)
    wrong = exact.clone()
    wrong[7] = 1 - int(wrong[7])
    assert share(whole(exact), exact) == 0
    assert share(whole(exact), wrong) == INF


def quantised(rows: int = 64, columns: int = 512) -> tuple[torch.Tensor, torch.Tensor]:
    """Half-precision rows and their exact int8 values."""
    x = torch.randn((rows, columns), generator=torch.Generator().manual_seed(1)).half()
    wide = x.double()
    return x, (wide / (wide.abs().amax(1, keepdim=True) / 127)).round().to(torch.int8)


def test_a_few_quantised_values_may_be_rounded_the_other_way() -> None:
    x, exact = quantised()
    reciprocal = (x.float() * (127 / x.float().abs().amax(1, keepdim=True))).round().to(torch.int8)
    assert share(whole(exact), reciprocal) <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, exact: (x.float() / (x.float().abs().amax(1, keepdim=True) / 127)).trunc().to(torch.int8),
        lambda x, exact: (x.float() / (x.float().abs().amax() / 127)).round().to(torch.int8),
        lambda x, exact: exact + 1,
        lambda x, exact: torch.where(torch.arange(exact.numel()).view(exact.shape) == 5, exact + 2, exact),
        lambda x, exact: torch.where(
            torch.arange(exact.numel()).view(exact.shape) % 500 == 0, exact - 1, exact
        ),
        lambda x, exact: torch.zeros_like(exact),
    ],
    ids=["cut off", "one scale for all", "all off by one", "one off by two", "two in a thousand", "zeros"],
)
def test_a_wrong_quantiser_is_wrong(wrong) -> None:  # type: ignore[no-untyped-def]
    x, exact = quantised()
    assert share(whole(exact), wrong(x, exact)) > 1


def test_the_contract_says_how_many_may_differ() -> None:
    exact = torch.arange(1000, dtype=torch.int32)
    wrong = exact.clone()
    wrong[:10] += 3
    assert share(whole(exact, may_differ=0.01, by=3), wrong) == 1
    assert share(whole(exact, may_differ=0.009, by=3), wrong) == INF
    assert share(whole(exact, may_differ=0.01, by=2), wrong) > 1
    assert share(whole(exact, may_differ=1.0, by=9), exact + 1) == INF, "never all of them"


def test_one_ill_conditioned_whole_number_loosens_no_others_budget() -> None:
    exact = torch.arange(1000, dtype=torch.int32)
    plain = exact.clone()
    plain[3] += 5
    assert share(whole(exact, plain), plain) <= 1
    assert share(whole(exact, plain), exact + 1) == INF


def test_equal_infinities_at_equal_places_are_right() -> None:
    exact = torch.tensor([1.0, -INF, INF, 2.0], dtype=torch.float64)
    contract = Given(Spec((4,), torch.float32), exact, exact.float())
    assert share(contract, exact.float()) == 0
    for wrong in (
        [1.0, INF, INF, 2.0],
        [1.0, 0.0, INF, 2.0],
        [INF, -INF, INF, 2.0],
        [float("nan"), -INF, INF, 2.0],
    ):
        assert share(contract, torch.tensor(wrong)) == INF
    assert 1 < share(contract, torch.tensor([1.1, -INF, INF, 2.0])) < INF, "the scale is of what is finite"


def test_nan_is_nowhere_what_is_expected() -> None:
    expected = torch.tensor([1.0, INF], dtype=torch.float64)
    for got in ([float("nan"), INF], [1.0, float("nan")], [1.0, -INF]):
        assert not torch.equal(infinities(torch.tensor(got)), infinities(expected))
    assert torch.equal(infinities(torch.tensor([2.0, INF])), infinities(expected))


def test_a_result_that_is_infinite_elsewhere_is_the_contracts_fault() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    with pytest.raises(CaseError, match=r"'y' infinite elsewhere than the reference"):
        share(Given(Spec((2,), torch.float32), exact, torch.tensor([1.0, INF])), exact.float())


class LastOfEqual(Given):
    """Any index that holds the maximum is right."""

    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])

    def errors(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> Tensors:
        held = self.x.gather(1, outputs["y"][:, None])[:, 0]
        return {"y": torch.where(held == self.x.amax(1), 0.0, INF)}


def test_a_contract_may_have_a_rule_of_its_own() -> None:
    first = torch.tensor([1, 0])
    contract = LastOfEqual(Spec((2,), torch.int64), first, first)
    assert share(contract, first) == share(contract, torch.tensor([2, 0])) == 0
    assert share(contract, torch.tensor([0, 0])) == share(contract, torch.tensor([1, 2])) == INF


class Alone(LastOfEqual):
    """Whose own rule is all there is."""

    needs_reference = False

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        raise AssertionError("nobody needs it")


def test_a_rule_of_its_own_may_be_all_there_is() -> None:
    first = torch.tensor([1, 0])
    contract = Alone(Spec((2,), torch.int64), first, first)
    inputs = {"x": contract.x}
    arena = Arena(lay_out(shapes_of(inputs), shapes_of(contract.outputs({})), 1), HostMemory)
    arena.fill(0, inputs)
    arena.outputs(0)["y"].copy_(first)
    assert check_slot(contract, "p", arena, 0, inputs, 4.0, "normal") == 0
    arena.outputs(0)["y"].copy_(torch.tensor([0, 0]))
    with pytest.raises(CandidateFault, match=r"output 'y'\[0\] is 0; 1 of 2 elements are over the budget"):
        check_slot(contract, "p", arena, 0, inputs, 4.0, "normal")
    arena.close()


def test_a_wrong_result_says_where_it_is_wrong() -> None:
    exact = torch.zeros((3, 4), dtype=torch.float64)
    contract = Given(Spec((3, 4), torch.float32), exact, exact.float(), torch.ones_like(exact))
    wrong = exact.float()
    wrong[2, 1], wrong[0, 3] = 0.25, 0.125
    expected = expected_outputs(contract, {}, {}, 4.0)
    assert describe_error({"y": wrong}, expected) == (
        "output 'y'[2, 1] is 0.25 and should be 0; 2 of 12 elements are over the budget"
    )
    assert error_shares({"y": wrong}, expected)["y"].shape == (3, 4)


def test_of_whole_numbers_every_digit_is_told() -> None:
    exact = torch.full((5,), 2**62 + 1)
    output = exact.clone()
    output[3] += 1
    contract = whole(exact)
    expected = expected_outputs(contract, {}, {}, 4.0)
    assert describe_error({"y": output}, expected) == (
        f"output 'y'[3] is {2**62 + 2} and should be {2**62 + 1}; 1 of 5 elements are over the budget"
    )
