"""Where an operator's arguments come from: a function of the source, or shapes and ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from hillclimb.harness.case.contract import Problem
from hillclimb.harness.sources.operators import changes
from hillclimb.harness.sources.source_file import load_source

MAX_SEED, MAX_GIVEN_SEED = 2**31 - 1, 100_000
"""Of a seed drawn here, and of one that a source's function is given: some compute with theirs."""


class Draw(Protocol):
    """Gives the arguments of one call, from torch's, NumPy's and Python's usual generators, on the usual device."""

    def __call__(self, problem: Problem) -> Any: ...


@dataclass(frozen=True)
class FromFunction:
    """A function of the source, called with those of the problem's sizes that it takes, and a seed if it has one."""

    source: Path
    name: str
    constants: Mapping[str, str] = field(default_factory=dict)
    """As those of operators.Function."""

    def __call__(self, problem: Problem) -> Any:
        function = load_source(self.source, changes(problem, self.constants))[self.name]
        names = signature(function).parameters
        given = {name: value for name, value in problem.items() if name in names}
        if "seed" in names:
            given["seed"] = draw_seed(torch.default_generator) % MAX_GIVEN_SEED
        return pytree.tree_map_only(np.ndarray, torch.from_numpy, function(**given))


def draw_seed(generator: torch.Generator) -> int:
    """From a generator; 0 where only shapes are wanted, so that tensors have no contents."""
    drawn = torch.randint(MAX_SEED, (1,), generator=generator, device=generator.device)
    return 0 if isinstance(drawn, FakeTensor) else int(drawn)


@dataclass(frozen=True)
class DrawnArray:
    """One argument: its shape in the problem's sizes or numbers, its dtype and what it is filled with."""

    shape: Sequence[str | int]
    dtype: str
    fill: Literal["normal", "integers", "booleans"] = "normal"
    low: float = 0.0
    """normal: the mean; integers: the smallest; booleans: unused."""
    high: float = 1.0
    """normal: the standard deviation; integers: one above the largest; booleans: the share that is true."""


@dataclass(frozen=True)
class FromShapes:
    """Arguments by name, each drawn on its own; a name without an array is one of the problem's numbers."""

    arrays: Mapping[str, DrawnArray]
    scalars: Sequence[str] = ()
    order: Sequence[str] = ()
    """Of arrays and scalars together."""

    def __call__(self, problem: Problem) -> Any:
        return tuple(
            problem[name] if name in self.scalars else _draw(self.arrays[name], problem)
            for name in self.order
        )


def _draw(array: DrawnArray, problem: Problem) -> torch.Tensor:
    shape = tuple(problem[size] if isinstance(size, str) else size for size in array.shape)
    dtype: torch.dtype = getattr(torch, array.dtype)
    if array.fill == "integers":
        return torch.randint(int(array.low), int(array.high), shape, dtype=dtype)
    if array.fill == "booleans":
        return torch.rand(shape) < array.high
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    return (torch.randn(shape, dtype=wide) * array.high + array.low).to(dtype)
