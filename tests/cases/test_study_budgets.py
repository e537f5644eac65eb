"""The case studies' budgets are hard on wrong results: an input's end left out, fewer bits, one element missing."""

from __future__ import annotations

import pytest
import torch

from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.device.cpu.cpu import MAX_INTERPRETED_BYTES
from hillclimb.harness.duel.parity import expected_outputs, worst_error
from hillclimb.harness.judge.contract_mutants import LISTED, ContractMutants, find_surviving_mutants
from hillclimb.harness.studies.study import StudyCase, choose_cases
from tests.cases.workspace import CASES, load_case

CANCELLED = {("kldiv_ops", "equal", "loss")}
"""Differences of equal numbers: zero is as right as what is left of their rounding."""

FEW_ROUNDINGS = 4
"""Of the output's dtype, what float32 arithmetic may be off by before its result is rounded."""

POWERS = {("softmax_optimize", "spike"): 64}
"""exp(x) is off by x roundings, and these are about -20."""


@pytest.mark.slow(
    1,
    but=[
        "unroll_for_loop/matmul_leakyrelu",
        "unroll_for_loop/flash_decode2_phi",
        "mask_percentage/quantize_kv_transform",
        "unroll_for_loop/rmsnorm_fused",
    ],
)
@pytest.mark.parametrize("study", choose_cases(CASES), ids=str)
def test_what_is_wrong_on_purpose_is_noticed(study: StudyCase) -> None:
    """As `hillclimb check` tries it."""
    case, contract = load_case(study.folder, TORCH_DTYPES)
    small = [n for n, p in contract.problems.items() if contract.work(p).bytes <= MAX_INTERPRETED_BYTES]
    oracle = ContractMutants(contract, case.settings.gate.error_budget, "cpu")
    found = find_surviving_mutants(oracle, small, (), True, lambda progress: None)
    assert found.tried > 10
    assert [slip.mistake for slip in found.accepted if slip.mistake != LISTED] == []


def test_a_copy_that_leaves_its_end_out_is_noticed() -> None:
    (study,) = choose_cases(CASES, None, "var_len_copy")
    case, contract = load_case(study.folder, TORCH_DTYPES)
    for name, problem in contract.problems.items():
        if contract.work(problem).bytes <= MAX_INTERPRETED_BYTES:
            inputs = contract.inputs(problem, contract.distributions[0], torch.Generator().manual_seed(5))
            expected = expected_outputs(contract, problem, inputs, case.settings.gate.error_budget)
            wrong = contract.attainable(problem, inputs)
            for tensor in wrong.values():
                tensor[-1] += 1
            assert worst_error(wrong, expected) > 1, name


@pytest.mark.slow(
    1,
    but=[
        "unroll_for_loop/matmul_leakyrelu",
        "unroll_for_loop/flash_decode2_phi",
        "mask_percentage/quantize_kv_transform",
        "unroll_for_loop/rmsnorm_fused",
    ],
)
@pytest.mark.parametrize("study", choose_cases(CASES), ids=str)
def test_one_element_that_is_not_computed_is_noticed(study: StudyCase) -> None:
    """The largest of each output, left at zero, in every problem and distribution where it is not zero itself."""
    case, contract = load_case(study.folder, TORCH_DTYPES)
    for name, problem in contract.problems.items():
        if contract.work(problem).bytes > MAX_INTERPRETED_BYTES:
            continue
        for distribution in contract.distributions:
            inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(6))
            expected = expected_outputs(contract, problem, inputs, case.settings.gate.error_budget)
            for key, value in contract.attainable(problem, inputs).items():
                wrong = value.clone().flatten()
                wrong[wrong.float().abs().argmax()] = 0
                outputs = {**contract.attainable(problem, inputs), key: wrong.view(value.shape)}
                is_zero = float(expected.reference[key].abs().max()) == 0
                if not is_zero and (study.name, distribution, key) not in CANCELLED:
                    assert worst_error(outputs, expected) > 1, (name, distribution, key)


@pytest.mark.slow(5, but=["unroll_for_loop/matmul_leakyrelu"])
@pytest.mark.parametrize("study", choose_cases(CASES), ids=str)
def test_budgets_are_a_few_roundings(study: StudyCase) -> None:
    """What the contract's own computation loses widens every kernel's budget: it may lose hardly anything."""
    _, contract = load_case(study.folder, TORCH_DTYPES)
    for name, problem in contract.problems.items():
        if contract.work(problem).bytes > 16 * MAX_INTERPRETED_BYTES:
            continue
        outputs = contract.outputs(problem)
        for distribution in contract.distributions:
            inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(7))
            most = POWERS.get((study.name, distribution), FEW_ROUNDINGS)
            for key, budget in expected_outputs(contract, problem, inputs, 1.0).budget.items():
                dtype = outputs[key].dtype
                rounding = torch.finfo(dtype).eps if dtype.is_floating_point else 1
                assert budget <= most * rounding, (name, distribution, key)
