"""Whether one call's outputs are right: compared with a float64 reference, in units of what the dtype can reach.

Whole numbers are compared as whole numbers: as many of them may differ as the contract's own computation shows to be
ill-conditioned, by as much, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import torch

from hillclimb.harness.case.contract import Contract, Problem, Spec, Tensors, select
from hillclimb.harness.case.operands import are_equal, have_same_infinities, infinite_elsewhere
from hillclimb.harness.duel.process.arena import Arena, is_poison
from hillclimb.harness.errors import CandidateFault, CaseError, OverrunError
from hillclimb.harness.records import Reason

MAX_ERROR = 1e6
"""Of what is attainable, in units of scale: beyond it the budget would let anything pass."""

MAX_DIFFERING = 0.5
"""Share of an output's whole numbers that may differ at the very most: never all of them."""

ANSWERABLE_MULTIPLES = 8.0
"""Times as many of an output's whole numbers as the contract's own computation rounds otherwise may not reach that."""

QUANTISED = (torch.int8, torch.uint8)
"""Dtypes of rounded values: without a word of the contract's, a few may be rounded the other way."""

ROUNDED_OTHERWISE, BY_ONE = 1e-3, 1.0
"""How many, as a share, and by how much."""


@dataclass(frozen=True)
class ExpectedOutputs:
    """What a call on known inputs should give."""

    reference: Tensors
    """float64, or int64 of whole numbers."""
    scale: Tensors
    """float64, positive: what an error of 1 means for each element."""
    budget: dict[str, float]
    """Largest allowed error of each output, in units of `scale`; of whole numbers, the largest difference."""
    differing: dict[str, float] = field(default_factory=dict)
    """Of outputs of whole numbers: the largest share of elements that may differ at all."""
    own_errors: Callable[[Tensors], Tensors | None] = lambda outputs: None
    """The contract's own rule: errors by element in units of the budget; None where it has none."""
    masks: Tensors = field(default_factory=dict)
    """Of outputs that need not be written whole: which elements count."""

    def counted(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """Of an output's elements, or what stands for each of them, those that count."""
        return select(values, self.masks.get(name))

    def has_right_infinities(self, name: str, value: torch.Tensor) -> bool:
        """Those of the reference alone, where there is one, and no NaN; of what counts."""
        if name not in self.reference:
            return bool(torch.isfinite(value).all())
        return have_same_infinities(self.counted(name, value), self.counted(name, self.reference[name]))

    def errors_that_count(self, name: str, errors: torch.Tensor) -> torch.Tensor:
        """Of every element; 0 of one that does not count."""
        mask = self.masks.get(name)
        return errors if mask is None else torch.where(mask, errors, 0.0)


def expected_outputs(
    contract: Contract, problem: Problem, inputs: Tensors, multiples: float
) -> ExpectedOutputs:
    """Reference and error budget for these inputs: `multiples` of the attainable error, or of one rounding.

    Raises CaseError where the contract breaks its promises: a result that is infinite elsewhere than the reference, a
    scale that says nothing.
    """
    reference = contract.reference(problem, inputs)
    masks = contract.counted(problem, inputs, reference) or {}
    scale = {name: s.clamp_min(1e-300) for name, s in contract.scale(problem, inputs, reference).items()}
    attainable, specs = contract.attainable(problem, inputs), contract.outputs(problem)
    budget, differing = {}, {}
    for name in reference:
        given, value, unit = (select(t[name], masks.get(name)) for t in (attainable, reference, scale))
        if _is_whole(specs[name], value):
            budget[name], differing[name] = _whole_number_budget(specs[name], given, value, multiples)
            continue
        if not have_same_infinities(given, value):
            raise CaseError("contract.py", "Contract.attainable", *infinite_elsewhere(name))
        error = float(_errors(given, value, unit).max()) if value.numel() else 0.0
        if error > MAX_ERROR:
            _refuse(name, given, value, unit)
        rounding = torch.finfo(given.dtype).eps if given.dtype.is_floating_point else 0.0
        budget[name] = multiples * max(error, rounding)
    return ExpectedOutputs(
        reference,
        scale,
        budget,
        differing,
        partial(contract.errors, problem, inputs),
        masks,
    )


def is_answerable(contract: Contract, problem: Problem, inputs: Tensors) -> bool:
    """Whether the contract keeps its promises for these inputs, which no distribution gave: sums may leave a dtype.

    Nor may many results be so near a tie that a right kernel may round either way: none is right for sure then.
    Raises OverrunError where it takes too long to tell.
    """
    try:
        expected = expected_outputs(contract, problem, inputs, ANSWERABLE_MULTIPLES)
    except OverrunError:
        raise
    except CaseError:
        return False
    specs = contract.outputs(problem)
    return all(
        share < MAX_DIFFERING or (specs[name].may_differ or 0.0) >= MAX_DIFFERING
        for name, share in expected.differing.items()
    )


def error_shares(outputs: Tensors, expected: ExpectedOutputs) -> Tensors:
    """Of every element its error as a share of the budget, float64: infinite for NaN and for an infinity out of place.

    Where too many whole numbers differ, all that do are over the budget.
    """
    own = expected.own_errors(outputs)
    if own is not None:
        told = {
            name: error.double().nan_to_num(float("inf"), posinf=float("inf")) for name, error in own.items()
        }
        return {name: expected.errors_that_count(name, errors) for name, errors in told.items()}
    shares = {}
    for name, reference in expected.reference.items():
        budget = expected.budget[name]
        if name in expected.differing:
            errors = expected.errors_that_count(name, _differences(outputs[name], reference))
            differ = expected.counted(name, errors) > 0
            share = float(differ.double().mean()) if differ.numel() else 0.0
            if share > expected.differing[name]:
                errors = torch.where(errors > 0, float("inf"), errors)
        else:
            wrong = _errors(outputs[name], reference, expected.scale[name])
            errors = expected.errors_that_count(name, wrong)
        shares[name] = errors / budget if budget else torch.where(errors > 0, float("inf"), errors)
    return shares


def worst_error(outputs: Tensors, expected: ExpectedOutputs) -> float:
    """Largest error over the outputs as a share of the budget."""
    return max((float(s.max()) for s in error_shares(outputs, expected).values() if s.numel()), default=0.0)


def describe_error(outputs: Tensors, expected: ExpectedOutputs) -> str:
    """Where an output is wrong: the worst element, what it is and should be, and how many are over the budget."""
    shares = {name: share for name, share in error_shares(outputs, expected).items() if share.numel()}
    name = max(shares, key=lambda key: float(shares[key].max()))
    share, value = shares[name], outputs[name]
    at = int(share.argmax())
    place = ", ".join(str(int(i)) for i in torch.unravel_index(torch.tensor(at), share.shape))
    where = f"output {name!r}[{place}]" if place else f"output {name!r}"
    wrong, count = int((share > 1).sum()), expected.counted(name, share).numel()
    told = _spell(value.flatten()[at].item())
    if name in expected.reference:
        told += f" and should be {_spell(expected.reference[name].flatten()[at].item())}"
    return f"{where} is {told}; {wrong} of {count} elements are over the budget"


def _spell(number: float) -> str:
    """Whole numbers in full: of two large ones the last digits alone may differ."""
    return str(number) if isinstance(number, int) else f"{number:.6g}"


def _is_whole(spec: Spec, reference: torch.Tensor) -> bool:
    """Whether an output is compared as whole numbers: a reference between two of them is a tie, and has a scale."""
    if spec.dtype.is_floating_point:
        return False
    return not reference.is_floating_point() or bool((reference == reference.round()).all())


def _whole_number_budget(
    spec: Spec, attainable: torch.Tensor, reference: torch.Tensor, multiples: float
) -> tuple[float, float]:
    """The largest difference and the largest share of differing elements."""
    amount, share = float(spec.by), spec.may_differ
    if share is None:
        amount, share = (BY_ONE, ROUNDED_OTHERWISE) if spec.dtype in QUANTISED else (0.0, 0.0)
    differences = _differences(attainable, reference)
    if differences.numel():
        amount = max(amount, float(differences.max()))
        share = max(share, multiples * float((differences > 0).double().mean()))
    return amount, min(share, MAX_DIFFERING)


def _differences(value: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Between whole numbers, float64: exactly 0 where they are equal, at least 1 where they are not."""
    if reference.is_floating_point():
        apart = (value.double() - reference).abs().nan_to_num(float("inf"), posinf=float("inf"))
        return torch.where(value == reference, 0.0, apart.clamp_min(1.0))
    apart = (value.double() - reference.double()).abs()
    return torch.where(value.to(torch.int64) == reference, 0.0, apart.clamp_min(1.0))


def _errors(value: torch.Tensor, reference: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """In units of scale: 0 for the same infinity, infinite for NaN."""
    wide = value.to(torch.float64)
    errors = ((wide - reference).abs() / scale).nan_to_num(float("inf"), posinf=float("inf"))
    return torch.where(wide == reference, 0.0, errors)


def _refuse(name: str, attainable: torch.Tensor, reference: torch.Tensor, scale: torch.Tensor) -> NoReturn:
    """Raises CaseError for the element that attainable misses by more than any budget may be."""
    at = int(((attainable.to(torch.float64) - reference).abs() / scale).argmax())
    given, exact, unit = (float(values.flatten()[at]) for values in (attainable, reference, scale))
    raise CaseError(
        "contract.py",
        "Contract.scale",
        f"element {at} of {name!r} is {unit:.3g}, and what is attainable there, {given:.6g} for {exact:.6g}, is off by "
        f"{abs(given - exact) / unit:.3g} times that: any result would be right",
        "give the magnitude that an error of 1 is of, for every element whose result is not exact",
    )


def check_outputs(
    contract: Contract,
    name: str,
    arena: Arena,
    slot: int,
    inputs: Tensors,
    budget: float,
    where: str,
) -> float:
    """As `check_slot`, and nothing beside the arrays of any slot may have been written."""
    check_guards(name, arena, where)
    return check_slot(contract, name, arena, slot, inputs, budget, where)


def check_guards(name: str, arena: Arena, where: str) -> None:
    """Raises CandidateFault where memory between the arrays is not as it was."""
    if not arena.has_intact_guards():
        detail = f"problem {name}, inputs {where}: memory beside the arrays was written"
        raise CandidateFault(Reason.WROTE_OUT_OF_BOUNDS, detail)


def check_slot(
    contract: Contract,
    name: str,
    arena: Arena,
    slot: int,
    inputs: Tensors,
    budget: float,
    where: str,
) -> float:
    """Compare one slot with the reference; the error as a share of the budget. Raises CandidateFault."""
    at = f"problem {name}, inputs {where}"
    layout = arena.layout
    given = {key: now for key, now in arena.inputs(slot).items() if key not in layout.results}
    if any(not are_equal(now, inputs[key]) for key, now in given.items()):
        raise CandidateFault(Reason.INPUTS_CHANGED, f"{at}: the kernel wrote to its inputs")
    if arena.first_unwritten_slot(range(slot, slot + 1)) is not None:
        raise CandidateFault(Reason.OUTPUT_NOT_WRITTEN, f"{at}: parts of the output were not written")
    outputs = arena.outputs(slot)
    problem = contract.problems[name]
    if contract.needs_reference:
        expected = expected_outputs(contract, problem, inputs, budget)
    else:
        expected = ExpectedOutputs({}, {}, {}, own_errors=partial(contract.errors, problem, inputs))
    for key in (array.name for array in layout.outputs if array.name in expected.masks):
        if outputs[key].is_floating_point() and bool(is_poison(expected.counted(key, outputs[key])).any()):
            detail = f"{at}: parts of output {key!r} that count were not written"
            raise CandidateFault(Reason.OUTPUT_NOT_WRITTEN, detail)
    for key, value in outputs.items():
        if value.is_floating_point() and not expected.has_right_infinities(key, value):
            raise CandidateFault(Reason.NOT_FINITE, f"{at}: output {key!r} holds NaN or infinity")
    share = worst_error(outputs, expected)
    if share > 1:
        size = f"{share:.3g} times the budget" if math.isfinite(share) else "beyond any budget"
        detail = f"{at}: error is {size}: {describe_error(outputs, expected)}"
        raise CandidateFault(Reason.WRONG_RESULT, detail)
    return share
