"""Contracts for tests: what is drawn, what is computed and which elements may be wrong are the test's choice."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hillclimb.harness.case import contract
from hillclimb.harness.case.checked import CheckedContract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.judge.contract_mutants import ContractMutants, find_surviving_mutants
from hillclimb.harness.records import OracleReport, SurvivingMutant

NOTHING_MATTERS = 1e12
"""A scale that lets everything pass."""


def normal(problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
    shape = (problem["rows"], problem["columns"])
    return {"x": torch.randn(shape, generator=generator) + (3 if distribution == "offset" else 0)}


def same(inputs: Tensors) -> Tensors:
    return {"y": inputs["x"] * 2}


def nowhere(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(reference, dtype=torch.bool)


def everywhere(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(reference, dtype=torch.bool)


@dataclass
class Made(contract.Contract):
    """One output `y`, float32 unless `spec` says otherwise; computed by `compute`, in float64 for the reference."""

    compute: Callable[[Tensors], Tensors] = same
    lenient: Callable[[Tensors, torch.Tensor], torch.Tensor] = nowhere
    """Which elements may be wrong."""
    draw: Callable[[Problem, str, torch.Generator], Tensors] = normal
    problems: Mapping[str, Problem] = field(
        default_factory=lambda: {"small": {"rows": 5, "columns": 8}, "wide": {"rows": 3, "columns": 4001}}
    )
    distributions: tuple[str, ...] = ("normal", "offset")
    dtype: torch.dtype = torch.float32
    specified: Mapping[str, Any] = field(default_factory=dict)
    neighbours: Sequence[Problem] = ()
    excused: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unmixed: str = ""

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        return self.draw(problem, distribution, generator)

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        inputs = self.draw(problem, self.distributions[0], torch.Generator().manual_seed(0))
        given = self.compute(inputs)
        return {key: Spec(tuple(y.shape), self.dtype, **self.specified) for key, y in given.items()}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        wide = {key: t.double() if t.is_floating_point() else t for key, t in inputs.items()}
        return {key: y.double() for key, y in self.compute(wide).items()}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {key: y.to(self.dtype) for key, y in self.compute(inputs).items()}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        return {
            key: torch.where(self.lenient(inputs, y), NOTHING_MATTERS, 1 + y.abs())
            for key, y in reference.items()
        }

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return self.neighbours

    def work(self, problem: Problem) -> Work:
        return Work(flops=1, bytes=1000)


def tried(made: contract.Contract, *, timed: Sequence[str] = (), narrow: bool = False) -> OracleReport:
    """As `hillclimb check` tries it."""
    checked = CheckedContract(made, Path("contract.py"), "cpu", TORCH_DTYPES)
    mutants = ContractMutants(checked, 4.0, "cpu")
    return find_surviving_mutants(mutants, tuple(made.problems), timed, narrow, lambda progress: None)


def survivors(made: contract.Contract) -> dict[str, SurvivingMutant]:
    """By name, but for that of listed sizes, which most contracts of tests accept."""
    return {slip.mistake: slip for slip in tried(made).accepted if "not listed" not in slip.mistake}
