"""Inputs as they were drawn, what is expected of them, and how a wrong result fares there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from hillclimb.harness.case.contract import Contract, Problem, Spec, Tensors
from hillclimb.harness.duel.parity import ExpectedOutputs, expected_outputs, worst_error
from hillclimb.harness.errors import CaseError


@dataclass(frozen=True)
class Mutant:
    """A way to be wrong on known inputs, and the result it gives."""

    name: str
    make: Callable[[], Tensors | None]
    """The result; None where the mistake cannot be made. Raises CaseError where the contract refuses what it gives."""
    shows_dependence: bool = False
    """Whether it is right where the outputs are the same whatever is computed."""
    should_differ: bool = False
    """Whether a contract under which it never gives another result draws too little; else it is then no mistake."""


@dataclass(frozen=True)
class DrawnCall:
    """One call's inputs, with what a right and a plain computation make of them: computed where it is asked for."""

    contract: Contract
    problem: Problem
    place: str
    """`problem/distribution`."""
    inputs: Tensors
    multiples: float
    """The error budget, in multiples of what is attainable."""
    draw_others: Callable[[], Tensors]
    """Draws other inputs of the same problem."""

    @cached_property
    def expected(self) -> ExpectedOutputs:
        """Raises CaseError where the contract breaks its promises on these inputs."""
        return expected_outputs(self.contract, self.problem, self.inputs, self.multiples)

    @cached_property
    def plain(self) -> Tensors:
        """What `attainable` gives."""
        return self.attain(self.inputs)

    @cached_property
    def counted(self) -> Tensors:
        """Of outputs that need not be written whole, which elements count."""
        return self.contract.counted(self.problem, self.inputs, self.expected.reference) or {}

    def share(self, mutant: Mutant) -> float | None:
        """Largest error of its result as a share of the budget: infinite where the contract refuses to give it.

        None where it cannot be made, or where nothing that counts differs from the plain result: 0 if it should.
        """
        plain, counted = (
            self.plain,
            self.counted,
        )  # where these raise, the contract is wrong and not the mutant
        try:
            outputs = mutant.make()
        except CaseError:
            return float("inf")
        if outputs is None:
            return None
        if not differ(outputs, plain, counted):
            return 0.0 if mutant.should_differ else None
        return worst_error(outputs, self.expected)

    def attain(self, inputs: Tensors) -> Tensors:
        """What the contract's plain computation makes of other inputs."""
        return self.contract.attainable(self.problem, inputs)

    @cached_property
    def specs(self) -> dict[str, Spec]:
        """Of the outputs that have elements: where none has, there is nothing to compare."""
        return {
            key: spec for key, spec in self.contract.outputs(self.problem).items() if math.prod(spec.shape)
        }


def differ(outputs: Tensors, others: Tensors, counted: Mapping[str, torch.Tensor]) -> bool:
    """Whether any element that counts has another value; NaN is another than all, and -0 none but 0."""
    for name, value in outputs.items():
        unequal = _comparable(value) != _comparable(others[name])
        if name in counted:
            unequal &= counted[name]
        if bool(unequal.any()):
            return True
    return False


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """torch compares no float8."""
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor
