"""The case studies' budgets are hard on wrong results: a kernel that leaves out the end of any input is rejected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from harness.case.contract import Tensors
from harness.device.cpu import INTERPRETED_BYTES
from harness.dtypes import TORCH_DTYPES
from harness.judge.parity import expect, worst_error
from harness.studies.study import StudyCase, choose
from tests.cases.workspace import CASES, load_case

Place = tuple[str, int]
"""An input and one of its dimensions."""

INERT = {"fused_rwkv6_kernel": {("w", 2)}}
"""The last token's decay acts on tokens that are not there."""

DATA = {torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn}
"""Dtypes of numbers; others are places, lengths and choices, but for what var_len_copy moves."""

CANCELLED = {("kldiv_ops", "equal", "loss")}
"""Differences of equal numbers: zero is as right as what is left of their rounding."""

FEW_ROUNDINGS = 4
"""Of the output's dtype, what float32 arithmetic may be off by before its result is rounded."""

POWERS = {("softmax_optimize", "spike"): 64}
"""exp(x) is off by x roundings, and these are about -20."""


def without_end(inputs: Tensors, place: Place) -> Tensors:
    """The inputs with the last slice of one of them, along one dimension, all zeros."""
    name, dim = place
    cut = inputs[name].clone()
    cut.select(dim, -1).zero_()
    return {**inputs, name: cut}


def places(inputs: Tensors) -> Iterator[Place]:
    for name, tensor in inputs.items():
        if tensor.dtype in DATA or name == "source":
            yield from ((name, dim) for dim, size in enumerate(tensor.shape) if size > 1)


def noticed(study: StudyCase) -> tuple[set[Place], set[Place]]:
    """Where an end that is left out was rejected on some problem and distribution, and where it never was."""
    case, contract = load_case(study.folder, TORCH_DTYPES)
    found: set[Place] = set()
    tried: set[Place] = set()
    for problem in contract.problems.values():
        if contract.work(problem).bytes > INTERPRETED_BYTES:
            continue
        for distribution in contract.distributions:
            inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(5))
            expected = expect(contract, problem, inputs, case.settings.gate.error_budget)
            tried |= set(places(inputs))
            for place in set(places(inputs)) - found:
                outputs = contract.attainable(problem, without_end(inputs, place))
                if worst_error(outputs, expected) > 1:
                    found.add(place)
    return found, tried - found


@pytest.mark.parametrize("study", choose(CASES), ids=str)
def test_an_end_that_is_left_out_is_noticed(study: StudyCase) -> None:
    found, missed = noticed(study)
    assert found
    assert missed == INERT.get(study.name, set())


@pytest.mark.parametrize("study", choose(CASES), ids=str)
def test_one_element_that_is_not_computed_is_noticed(study: StudyCase) -> None:
    """The largest of each output, left at zero, in every problem and distribution where it is not zero itself."""
    case, contract = load_case(study.folder, TORCH_DTYPES)
    for name, problem in contract.problems.items():
        if contract.work(problem).bytes > INTERPRETED_BYTES:
            continue
        for distribution in contract.distributions:
            inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(6))
            expected = expect(contract, problem, inputs, case.settings.gate.error_budget)
            for key, value in contract.attainable(problem, inputs).items():
                wrong = value.clone().flatten()
                wrong[wrong.float().abs().argmax()] = 0
                outputs = {**contract.attainable(problem, inputs), key: wrong.view(value.shape)}
                is_zero = float(expected.reference[key].abs().max()) == 0
                if not is_zero and (study.name, distribution, key) not in CANCELLED:
                    assert worst_error(outputs, expected) > 1, (name, distribution, key)


@pytest.mark.parametrize("study", choose(CASES), ids=str)
def test_budgets_are_a_few_roundings(study: StudyCase) -> None:
    """What the contract's own computation loses widens every kernel's budget: it may lose hardly anything."""
    _, contract = load_case(study.folder, TORCH_DTYPES)
    for name, problem in contract.problems.items():
        if contract.work(problem).bytes > 16 * INTERPRETED_BYTES:
            continue
        outputs = contract.outputs(problem)
        for distribution in contract.distributions:
            inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(7))
            most = POWERS.get((study.name, distribution), FEW_ROUNDINGS)
            for key, budget in expect(contract, problem, inputs, 1.0).budget.items():
                dtype = outputs[key].dtype
                rounding = torch.finfo(dtype).eps if dtype.is_floating_point else 1
                assert budget <= most * rounding, (name, distribution, key)
