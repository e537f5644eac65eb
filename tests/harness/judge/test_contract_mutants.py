"""Contracts put to the test: those that accept what is wrong are told of, sound ones are not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case import contract
from hillclimb.harness.case.checked import CheckedContract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.judge.contract_mutants import LISTED, ContractMutants, find_surviving_mutants
from hillclimb.harness.judge.mutants.spoiled_inputs import NARROW_BITS, narrow
from hillclimb.harness.judge.mutants.tally import MutantTally
from hillclimb.harness.records import OracleReport, Progress

Scale = Callable[[Tensors, Tensors], torch.Tensor]


class Products(contract.Contract):
    """c = A b in float16; `unused` is handed over and means nothing. How errors count is the test's choice."""

    problems: Mapping[str, Problem] = {"long": {"m": 8, "k": 8192}, "short": {"m": 8, "k": 16}}
    distributions = ("normal",)

    def __init__(self, scaled: Scale) -> None:
        self.scaled = scaled

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        shapes = {"a": (problem["m"], problem["k"]), "b": (problem["k"],), "unused": (4,)}
        return {
            name: torch.randn(shape, generator=generator, dtype=torch.float16)
            for name, shape in shapes.items()
        }

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"c": Spec((problem["m"],), torch.float16)}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"c": inputs["a"].double() @ inputs["b"].double()}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"c": (inputs["a"].float() @ inputs["b"].float()).half()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        return {"c": self.scaled(inputs, reference["c"])}

    def work(self, problem: Problem) -> Work:
        return Work(flops=2 * problem["m"] * problem["k"], bytes=2 * problem["m"] * problem["k"])


def magnitudes(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    return inputs["a"].double().abs() @ inputs["b"].double().abs()


def narrow_scale(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    return reference.abs() + 2**-8 * magnitudes(inputs, reference)


def tried(scaled: Scale, *, is_narrow_forbidden: bool = True) -> OracleReport:
    seen: list[Progress] = []
    checked = CheckedContract(Products(scaled), Path("contract.py"), "cpu", TORCH_DTYPES)
    report = find_surviving_mutants(
        ContractMutants(checked, 1.5, "cpu"), ("short", "long"), ("long",), is_narrow_forbidden, seen.append
    )
    assert {progress.stage for progress in seen} == {"oracle"}
    return report


NARROW = "inputs in fewer bits in problem long"


def test_a_sound_contract_accepts_nothing_and_what_matters_nowhere_is_not_told() -> None:
    report = tried(narrow_scale)
    assert [slip.mistake for slip in report.accepted] == [LISTED]
    assert report.tried == tried(magnitudes).tried
    assert not report.is_varied
    assert not report.has_empty
    assert report.without_domain == ("a", "b", "unused")


def test_the_whole_sum_of_magnitudes_lets_fewer_bits_pass() -> None:
    slips = {slip.mistake: slip for slip in tried(magnitudes).accepted}
    assert (slips[NARROW].problem, slips[NARROW].distribution) == ("long", "normal")
    assert 0 < slips[NARROW].share <= 1
    assert "the end of a left out along dimension 1" not in slips, "the short problem shows it"


def test_a_scale_that_is_far_too_wide_accepts_everything() -> None:
    report = tried(lambda inputs, reference: 1000 * magnitudes(inputs, reference))
    assert report.tried == len(report.accepted) > 10
    assert all("unused" not in slip.mistake for slip in report.accepted)


def test_fewer_bits_are_not_tried_where_they_are_allowed() -> None:
    report = tried(magnitudes, is_narrow_forbidden=False)
    assert report.tried == tried(magnitudes).tried - 1
    assert all(slip.mistake != NARROW for slip in report.accepted)


def test_what_a_spoiled_input_makes_infinite_is_noticed() -> None:
    class Quotients(Products):
        def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
            return {"c": inputs["a"].double().sum(1) / inputs["b"].double()[-1]}

        def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
            return {"c": (inputs["a"].float().sum(1) / inputs["b"].float()[-1]).half()}

    checked = CheckedContract(Quotients(narrow_scale), Path("contract.py"), "cpu", TORCH_DTYPES)
    tally = MutantTally()
    assert not ContractMutants(checked, 1.5, "cpu").try_all("short", tally)
    assert tally.nearest["the end of b left out along dimension 0"].share == math.inf


@pytest.mark.parametrize("dtype", NARROW_BITS)
@given(values=st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8))
def test_narrowed_numbers_have_few_bits_and_stay_close(dtype: torch.dtype, values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
    found = narrow(tensor)
    assert found.dtype == dtype
    assert torch.equal(narrow(found), found)
    wide, bits = tensor.double(), NARROW_BITS[dtype]
    assert bool(((found.double() - wide).abs() <= wide.abs() * 2.0**-bits).all())
    significand, _ = torch.frexp(found.double())
    assert bool(((significand * 2**bits).frac() == 0).all())


def test_what_is_no_number_stays_as_it_is() -> None:
    places = torch.tensor([3, 70_000], dtype=torch.int32)
    assert torch.equal(narrow(places), places)
    odd = narrow(torch.tensor([math.nan, math.inf, -math.inf, 0.0]))
    assert odd.isnan().tolist() == [True, False, False, False]
    assert odd[1:].tolist() == [math.inf, -math.inf, 0.0]
