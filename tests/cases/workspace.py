"""Loads a case and its kernel straight into the test's process, knobs set through the environment."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.case.contract import Contract, Tensors
from hillclimb.harness.channel.dtypes import NUMPY_DTYPES
from hillclimb.harness.knobs.knobs import KnobValue, to_environment

CASES = Path(__file__).parents[2] / "cases"


@dataclass(frozen=True)
class Check:
    """One problem under one distribution, and how far a plain float32 computation is off."""

    name: str
    inputs: Tensors
    outputs: Tensors
    reference: Tensors
    scale: Tensors
    unit: float

    def error(self, outputs: Tensors) -> float:
        """Largest error in units of the attainable one, or of one rounding where that is larger."""
        return _error(self, outputs) / max(self.unit, torch.finfo(torch.float32).eps)


def load_case(folder: Path, dtypes: Container[str] = NUMPY_DTYPES) -> tuple[Case, Contract]:
    """A case, and its contract held to these dtypes: those of NumPy, or for a GPU torch's."""
    case = Case(folder)
    return case, load_contract(case.contract_file, dtypes=dtypes)


def checks(contract: Contract, seed: int) -> list[Check]:
    """Every problem under every distribution; outputs poisoned with NaN."""
    torch.set_num_threads(1)
    return [
        _check(contract, problem, distribution, seed)
        for problem in contract.problems
        for distribution in contract.distributions
    ]


def _check(contract: Contract, name: str, distribution: str, seed: int) -> Check:
    problem = contract.problems[name]
    inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(seed))
    outputs = {
        k: torch.full(s.shape, float("nan"), dtype=s.dtype) for k, s in contract.outputs(problem).items()
    }
    reference = contract.reference(problem, inputs)
    scale = contract.scale(problem, inputs, reference)
    check = Check(f"{name}/{distribution}", inputs, outputs, reference, scale, 0.0)
    unit = _error(check, contract.attainable(problem, inputs))
    return Check(check.name, inputs, outputs, reference, scale, unit)


def _error(check: Check, outputs: Tensors) -> float:
    errors = [
        ((outputs[name].double() - value).abs() / check.scale[name]).max().item()
        for name, value in check.reference.items()
    ]
    return max(float("inf") if error != error else error for error in errors)


@contextmanager
def kernel(case: Case, values: Mapping[str, KnobValue]) -> Iterator[Callable[..., object]]:
    """The case's entry, imported afresh with these knob values set."""
    file, function = case.settings.entry.split(":")
    own = {path.stem for path in case.workspace.glob("*.py")}
    cpus = os.sched_getaffinity(0)  # which a kernel may narrow, for its own process as it thinks
    with pytest.MonkeyPatch.context() as patch:
        for name, value in to_environment(values).items():
            patch.setenv(name, value)
        patch.setattr(sys, "path", [str(case.workspace), *sys.path])
        try:
            yield getattr(import_file(case.workspace / file), function)
        finally:
            os.sched_setaffinity(0, cpus)
            for name in own:
                sys.modules.pop(name, None)


def import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(function: Callable[..., object], check: Check) -> Tensors:
    """The kernel's outputs, starting from NaN. Fails the test where an input changed."""
    before = {name: value.clone() for name, value in check.inputs.items()}
    outputs = {name: value.clone() for name, value in check.outputs.items()}
    function(*(t.numpy() for t in (*check.inputs.values(), *outputs.values())))
    assert all(torch.equal(before[name], value) for name, value in check.inputs.items())
    return outputs
