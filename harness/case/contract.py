"""The contract: what right means. A case's contract.py defines one subclass of Contract named `Contract`.

The contract runs in the judge, never in the candidate's process, and is not visible from there.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.dtypes import NUMPY_DTYPES
from harness.errors import CaseError

Problem = Mapping[str, Any]
"""The named sizes of one problem, e.g. {"m": 256, "n": 256, "k": 256}."""

Tensors = dict[str, torch.Tensor]

Attributes = Mapping[str, bool | int | float | str]
"""What of an operator is no tensor: {"stride": 2, "causal": True, "reduction": "mean"}."""


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of one output."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Work:
    """What one call must do at the least: floating-point operations, and bytes read once plus written once."""

    flops: int
    bytes: int


class Contract(ABC):
    """Problems, inputs, reference and work of one case."""

    problems: Mapping[str, Problem]
    """Every shape the kernel must be right for; the benchmark suites choose among them."""

    distributions: tuple[str, ...]
    """Names of the input distributions; every problem is checked under every one."""

    @abstractmethod
    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """Input tensors, in call order, drawn from `generator` alone. Contiguous, on the generator's device."""

    def more_inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """What `inputs` gives next; not to be overridden."""
        return self.inputs(problem, distribution, generator)

    @abstractmethod
    def outputs(self, problem: Problem) -> dict[str, Spec]:
        """Shapes and dtypes of the outputs, in call order after the inputs."""

    def attributes(self, problem: Problem) -> Attributes:
        """Keyword arguments of every call of this problem: run(*inputs, *outputs, **attributes). Default: none."""
        return {}

    @abstractmethod
    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The outputs in float64, from the mathematics."""

    @abstractmethod
    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The outputs as a plain, trusted computation in the baseline's own dtype gives them.

        Its error against the reference is the unit of the error budget.
        """

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Positive float64 magnitude per output element that errors are counted against.

        Default: the root mean square of each output. Override where elements differ in conditioning
        (a matrix product: |A| @ |B|), so that small elements are held to their own rounding error.
        """
        return {name: value.square().mean().sqrt().expand_as(value) for name, value in reference.items()}

    @abstractmethod
    def work(self, problem: Problem) -> Work:
        """Compulsory work of one call."""


def load_contract(path: Path, place: str = "cpu", dtypes: Container[str] = NUMPY_DTYPES) -> Contract:
    """The case's contract, held to its promises (harness.case.checked), tensors on torch's device `place`.

    Raises CaseError where contract.py does not define a complete one.
    """
    from harness.case.checked import CheckedContract  # which is built on this module

    return CheckedContract(_load(path), path, place, dtypes)


def _load(path: Path) -> Contract:
    spec = importlib.util.spec_from_file_location("hillclimb_contract", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise CaseError(path, "", "does not exist", "write it; cases/_template/contract.py shows how")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        contract = module.Contract()
    except (Exception, SystemExit) as error:
        raise CaseError(
            path,
            "Contract",
            f"cannot be loaded ({type(error).__name__}: {error})",
            "define a class Contract(harness.case.contract.Contract) with every method",
        ) from error
    if not isinstance(contract, Contract):
        raise CaseError(path, "Contract", "is not a harness.case.contract.Contract", "make it a subclass")
    return contract
