"""Problems on which every kernel is right are refused, those that depend on anything are not."""

from __future__ import annotations

import pytest
import torch

from hillclimb.harness.case.contract import Problem, Spec, Tensors
from hillclimb.harness.errors import CaseError
from hillclimb.harness.judge.contract_mutants import ContractMutants, find_surviving_mutants
from tests.harness.judge.mutants.made import Made, everywhere, same, survivors, tried

SIZES = {"fine": {"rows": 4, "columns": 6}, "column": {"rows": 5, "columns": 1}}


def softmax(inputs: Tensors) -> Tensors:
    return {"y": inputs["x"].softmax(1)}


def test_a_problem_whose_outputs_are_constant_is_refused_by_name() -> None:
    told = r"'column' are the same whatever is computed.*leave such .*'outputs that nothing changes in problem column'"
    with pytest.raises(CaseError, match=told):
        tried(Made(softmax, problems=SIZES))
    assert survivors(Made(softmax, problems={"fine": SIZES["fine"]})) == {}


@pytest.mark.parametrize("constant", [0.0, 1.0, -3.5])
@pytest.mark.parametrize("shape", [(1,), (3, 2)])
def test_a_constant_of_any_value_and_shape_is_refused(constant: float, shape: tuple[int, ...]) -> None:
    with pytest.raises(CaseError, match="'fine', 'column' are the same"):
        tried(Made(lambda inputs: {"y": torch.full(shape, constant)}, problems=SIZES))


def test_all_vacuous_problems_are_named_at_once_and_those_of_one_distribution_are_not() -> None:
    def mostly_zero(inputs: Tensors) -> Tensors:
        return {"y": inputs["x"] * (inputs["x"].mean() > 1)}

    assert survivors(Made(mostly_zero, problems=SIZES)) == {}
    with pytest.raises(CaseError, match="'fine', 'column'"):
        tried(Made(mostly_zero, problems=SIZES, distributions=("normal",)))


def test_a_single_product_is_no_constant() -> None:
    assert survivors(Made(same, problems={"single": {"rows": 1, "columns": 1}})) == {}


def test_a_copied_whole_number_is_no_constant() -> None:
    def drawn(problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        return {"x": torch.randint(-(2**31), 2**31, (1,), generator=generator, dtype=torch.int32)}

    made = Made(lambda inputs: {"y": inputs["x"].clone()}, draw=drawn, dtype=torch.int32)
    assert survivors(made) == {}


def test_what_a_wide_budget_accepts_is_told_and_not_refused() -> None:
    assert survivors(Made(same, lenient=everywhere, problems=SIZES))


def test_a_problem_without_elements_has_nothing_to_prove() -> None:
    class Empty(Made):
        def outputs(self, problem: Problem) -> dict[str, Spec]:
            return {"y": Spec((problem["rows"], problem["columns"]), torch.float32)}

    made = Empty(same, problems={"fine": {"rows": 4, "columns": 6}, "none": {"rows": 0, "columns": 6}})
    report = find_surviving_mutants(
        ContractMutants(made, 4.0, "cpu"), ("fine", "none"), (), False, lambda p: None
    )
    assert [slip.mistake for slip in report.accepted] == ["nothing written for sizes that are not listed"]


def test_an_edge_that_stays_for_a_reason_is_excused_and_told() -> None:
    excuse = {"outputs that nothing changes in problem column": "kernels get single columns wrong"}
    report = tried(Made(softmax, problems=SIZES, excused=excuse))
    assert [(slip.mistake, slip.excuse) for slip in report.excused] == list(excuse.items())
    with pytest.raises(CaseError, match="which no wrong result is called"):
        tried(Made(same, problems=SIZES, excused=excuse))
