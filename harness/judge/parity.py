"""Whether one call's outputs are right: compared with a float64 reference, in units of what the dtype can reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import torch

from harness.case.contract import Contract, Problem, Tensors
from harness.errors import CaseError

MOST_ERROR = 1e6
"""Of what is attainable, in units of scale: beyond it the budget would let anything pass."""


@dataclass(frozen=True)
class Expected:
    """What a call on known inputs should give."""

    reference: Tensors
    """float64."""
    scale: Tensors
    """float64, positive: what an error of 1 means for each element."""
    budget: dict[str, float]
    """Largest allowed error of each output, in units of `scale`."""


def expect(contract: Contract, problem: Problem, inputs: Tensors, multiples: float) -> Expected:
    """Reference and error budget for these inputs: `multiples` of the attainable error, or of one rounding.

    Raises CaseError where the contract breaks its promises: a reference that is not finite, a scale that says nothing.
    """
    reference = contract.reference(problem, inputs)
    scale = {name: s.clamp_min(1e-300) for name, s in contract.scale(problem, inputs, reference).items()}
    attainable = contract.attainable(problem, inputs)
    budget = {}
    for name, value in reference.items():
        dtype = attainable[name].dtype
        rounding = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        error = _error(attainable[name], value, scale[name])
        if error > MOST_ERROR:
            _refuse(name, attainable[name], value, scale[name])
        budget[name] = multiples * max(error, rounding)
    return Expected(reference, scale, budget)


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


def worst_error(outputs: Tensors, expected: Expected) -> float:
    """Largest error over the outputs as a share of the budget; infinite where an output is not finite."""
    shares = [0.0]
    for name, reference in expected.reference.items():
        error = _error(outputs[name], reference, expected.scale[name])
        budget = expected.budget[name]
        shares.append(error / budget if budget else (0.0 if error == 0 else float("inf")))
    return max(shares)


def _error(value: torch.Tensor, reference: torch.Tensor, scale: torch.Tensor) -> float:
    if value.numel() == 0:
        return 0.0
    error = float(((value.to(torch.float64) - reference).abs() / scale).max())
    return error if error == error else float("inf")
