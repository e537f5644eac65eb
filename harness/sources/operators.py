"""Operators: what of a source file is computed, a function or a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch.utils import _pytree as pytree

from hillclimb.harness.case.contract import Problem, Tensors
from hillclimb.harness.sources.source_file import load_source

BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


class Operator(Protocol):
    """What is computed from arguments, and from weights where it has any."""

    def weights(self, problem: Problem) -> Tensors:
        """Parameters and buffers as the source draws them, by their names in the module."""

    def sizes(self, problem: Problem) -> Sequence[Any]:
        """What the module is made with."""

    def __call__(self, problem: Problem, arguments: Any, weights: Tensors, *, is_exact: bool) -> Any: ...


@dataclass(frozen=True)
class Function:
    """A function of torch tensors, called with the arguments one by one or with all of them together."""

    source: Path
    name: str
    is_unpacked: bool = True
    constants: Mapping[str, str] = field(default_factory=dict)
    """Module-level constants of the source that a problem sets, by the problem's names."""

    def weights(self, problem: Problem) -> Tensors:
        return {}

    def sizes(self, problem: Problem) -> Sequence[Any]:
        return ()

    def __call__(self, problem: Problem, arguments: Any, weights: Tensors, *, is_exact: bool) -> Any:
        function = self._function(problem, is_exact)
        return _apply(function, arguments) if self.is_unpacked else function(arguments)

    def _function(self, problem: Problem, is_exact: bool) -> Callable[..., Any]:
        found: Callable[..., Any] = load_source(self.source, changes(problem, self.constants))[self.name]
        return found


@dataclass(frozen=True)
class NumpyFunction(Function):
    """A function of NumPy arrays; exactly, the float dtypes that it names are float64."""

    def __call__(self, problem: Problem, arguments: Any, weights: Tensors, *, is_exact: bool) -> Any:
        arrays = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.numpy(), arguments)
        found = _apply(self._function(problem, is_exact), arrays)
        return pytree.tree_map_only(np.ndarray | np.generic, _to_torch, found)

    def _function(self, problem: Problem, is_exact: bool) -> Callable[..., Any]:
        names = load_source(self.source, changes(problem, self.constants), is_exact=is_exact)
        found: Callable[..., Any] = names[self.name]
        return found


@dataclass(frozen=True)
class Module:
    """A torch.nn.Module: its weights are arguments of the kernel, drawn as the source draws them."""

    source: Path
    name: str
    sizes_from: str = ""
    """The source's function that gives the arguments of the module's constructor; empty: it has none."""
    mode: Literal["train", "eval"] = "train"
    constants: Mapping[str, str] = field(default_factory=dict)
    """As those of Function."""

    def weights(self, problem: Problem) -> Tensors:
        module = self._build(problem)
        return {name: tensor.detach() for name, tensor in named_weights(module)}

    def sizes(self, problem: Problem) -> Sequence[Any]:
        return list(self._names(problem)[self.sizes_from]()) if self.sizes_from else []

    def __call__(self, problem: Problem, arguments: Any, weights: Tensors, *, is_exact: bool) -> Any:
        with torch.device("meta"):
            module = self._build(problem)
        args, named = call_arguments(arguments)
        return torch.func.functional_call(module, weights, args, named)

    def _names(self, problem: Problem) -> Mapping[str, Any]:
        return load_source(self.source, changes(problem, self.constants))

    def _build(self, problem: Problem) -> torch.nn.Module:
        module: torch.nn.Module = self._names(problem)[self.name](*self.sizes(problem))
        return prepared(module, self.mode)


def prepared(module: torch.nn.Module, mode: str) -> torch.nn.Module:
    """In its mode. In training, batch norms keep no averages: they would be changed by a call.

    Raises ValueError where it keeps tensors that a kernel could not be given.
    """
    module.train(mode == "train")
    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                raise ValueError(f"the module's {name} is no parameter and no buffer; use register_buffer")
        if mode == "train" and isinstance(part, BATCH_NORMS):
            part.track_running_stats = False
            part.running_mean = part.running_var = part.num_batches_tracked = None
    return module


def named_weights(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Parameters, then buffers."""
    return [*module.named_parameters(), *module.named_buffers()]


def changes(problem: Problem, constants: Mapping[str, str]) -> dict[str, int]:
    """Which constants of the source have which values in this problem."""
    return {constant: problem[name] for name, constant in constants.items() if name in problem}


def call_arguments(arguments: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """By position, and by name where they are a dict."""
    if isinstance(arguments, Mapping):
        return (), dict(arguments)
    return (tuple(arguments), {}) if isinstance(arguments, tuple | list) else ((arguments,), {})


def _apply(function: Callable[..., Any], arguments: Any) -> Any:
    args, named = call_arguments(arguments)
    return function(*args, **named)


def _to_torch(value: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(value, order="C"))
