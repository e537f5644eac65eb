"""The contract: what right means. A case's contract.py defines one subclass of Contract named `Contract`.

The contract runs in the judge, never in the candidate's process, and is not visible from there.
"""

from __future__ import annotations

import copy
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from hillclimb.harness.channel.layout import Attributes

Problem = Mapping[str, Any]
"""The named sizes of one problem, e.g. {"m": 256, "n": 256, "k": 256}."""

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of one output, and of whole numbers how many may differ from the reference."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    may_differ: float | None = None
    """Of whole numbers, the largest share of elements that may differ. None: of int8 and uint8 one in a thousand may,
    by 1, as a value between two is rounded to either; of all others none may."""
    by: int = 1
    """And by how much."""
    strides: tuple[int, ...] | None = None
    """Elements from one index to the next in each dimension, dense in some order; None: C-contiguous."""


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

    domains: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Of inputs, the smallest and the largest value that an element may have, whatever the others are. Rare values of
    all of it are then tried among those that `inputs` draws. Whole numbers are mixed only if they are named here."""

    unmixed: str = ""
    """Why elements of several distributions may not stand in one input; empty: they may, and do."""

    model_path: Path | None = None
    """Where the files of the case's model lie, as case.yaml says; the lab sets it."""

    is_session: bool = False
    """Whether it is for the surface session, and no other."""

    needs_reference: bool = True
    """Whether a call's outputs are compared with `reference`. False: `errors` tells all that can be wrong with outputs
    that are finite, and an infinity is never right."""

    excused: Mapping[str, str] = MappingProxyType({})
    """Wrong results, named as `hillclimb check` names them, that the contract is right to accept, and why."""

    @abstractmethod
    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """Input tensors, in call order, drawn from `generator` alone, on the generator's device."""

    def more_inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """What `inputs` gives next; not to be overridden."""
        return self.inputs(problem, distribution, generator)

    @abstractmethod
    def outputs(self, problem: Problem) -> dict[str, Spec]:
        """Shapes and dtypes of the outputs, in call order after the inputs.

        An output that has the name of an input is that input, changed in place: it is handed over once, as the input.
        """

    def parameters(self, generator: torch.Generator) -> Tensors:
        """Tensors that stay the same for all calls of one process, such as weights, drawn from `generator` alone.

        If there are some, the entry is called once, entry(**parameters), and what it returns is called as the kernel.
        It may keep what it makes of them, and must not write to them. The other methods find them among the inputs.
        Default: none.
        """
        return {}

    def bound(self, parameters: Tensors) -> Contract:
        """The same contract with these parameters; not to be overridden."""
        return self

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        """Problems like this one that no list shows: one more, one less, a prime, two sizes swapped.

        The gate draws some of them afresh for every candidate. Default: none.
        """
        return ()

    def counted(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors | None:
        """Of outputs that need not be written whole, which elements count: booleans of the output's shape.

        Default: none, all of them count. An output that is not named counts whole. Every call of a problem names the
        same outputs.
        """
        return None

    @property
    def has_masks(self) -> bool:
        """Whether `counted` may say that something does not count; not to be overridden."""
        return type(self).counted is not Contract.counted

    def partial(self, problem: Problem, generator: torch.Generator) -> frozenset[str]:
        """Names of the outputs that `counted` gives masks of, for inputs from the generator; not to be overridden."""
        if not self.has_masks:
            return frozenset()
        inputs = self.inputs(problem, self.distributions[0], generator)
        return frozenset(self.counted(problem, inputs, self.reference(problem, inputs)) or ())

    def is_empty(self, problem: Problem) -> bool:
        """Whether its outputs have no elements at all; not to be overridden."""
        return not any(math.prod(spec.shape) for spec in self.outputs(problem).values())

    def extended(self, more: Mapping[str, Problem]) -> Contract:
        """The same contract with more problems; not to be overridden."""
        other = copy.copy(self)
        other.problems = {**self.problems, **more}
        return other

    def attributes(self, problem: Problem) -> Attributes:
        """Keyword arguments of every call of this problem: run(*inputs, *outputs, **attributes). Default: none."""
        return {}

    @abstractmethod
    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The outputs in float64, or in int64 those of whole numbers, from the mathematics. No NaN; an infinity is
        right where the output has the same."""

    @abstractmethod
    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The outputs as a plain, trusted computation in the baseline's own dtype gives them.

        Its error against the reference is the unit of the error budget.
        """

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """Positive float64 magnitude per output element that errors are counted against.

        Default: the root mean square of what counts of each output. Override where elements differ in conditioning
        (a matrix product: |A| @ |B|), so that small elements are held to their own rounding error.
        """
        masks = self.counted(problem, inputs, reference) or {}
        return {name: _root_mean_square(value, masks.get(name)) for name, value in reference.items()}

    def errors(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> Tensors | None:
        """The contract's own rule, where the reference is one of many right answers: ties, sets, random choices.

        Of each output, how wrong every element is as a share of what is allowed: up to 1 is right. It has the output's
        shape; one number broadcast over all says that of the whole. Default: none, the reference decides.
        """
        return None

    @abstractmethod
    def work(self, problem: Problem) -> Work:
        """Compulsory work of one call."""


def select(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The elements that count: all without a mask, as they are, else those of the mask in a row."""
    return values if mask is None else values[mask]


def _root_mean_square(value: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Over the finite elements that count, for every element."""
    finite = select(value, mask).double()
    finite = finite[torch.isfinite(finite)]
    root = finite.square().mean().sqrt() if finite.numel() else torch.ones((), dtype=torch.float64)
    return root.to(value.device).expand(value.shape)
