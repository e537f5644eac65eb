"""Modules that do the same work: of one class, with parameters of the same shapes, called with tensors of one kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from hillclimb.harness.extract.stepped_model import SteppedModel

WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word begins in a name such as LlamaRMSNorm."""


@dataclass
class ModuleGroup:
    """Of one step."""

    arguments: Sequence[Any]
    """Of its first call, copied."""
    keywords: Mapping[str, Any]
    result: Any
    modules: list[torch.nn.Module] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    calls: int = 0
    name: str = ""

    @property
    def kind(self) -> str:
        """The name of its class."""
        return type(self.modules[0]).__name__

    @property
    def inputs(self) -> tuple[str, ...]:
        """Such as float32[1,1,128]."""
        told = [describe(value) for value in self.arguments]
        return (*told, *(f"{name}={describe(value)}" for name, value in self.keywords.items()))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The same of its parameters and those of its parts."""
        return tuple(describe(one) for one in self.modules[0].parameters())

    @property
    def unfit(self) -> str:
        """Why it is no function of float tensors; empty where it is one."""
        for given in self.inputs:
            if "=" in given and not given.endswith("=None"):
                return f"is called with {given}"
        for value in self.arguments:
            if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
                return f"is called with {describe(value)}, which is no float tensor"
        if not (isinstance(self.result, torch.Tensor) and self.result.is_floating_point()):
            return f"returns {describe(self.result)}, which is no float tensor"
        return ""


def describe(value: object) -> str:
    """Of a tensor its dtype and sizes, of a number itself, of anything else its type."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"
    return repr(value) if isinstance(value, bool | int | float | None) else type(value).__name__


def find_groups(model: SteppedModel) -> list[ModuleGroup]:
    """Those that one step calls, but the model itself; named, in the order of their first calls."""
    groups: dict[tuple[object, ...], ModuleGroup] = {}

    def note(place: str, module: torch.nn.Module, given: Any, named: Any, result: Any) -> None:
        shapes = tuple(describe(one) for one in module.parameters())
        kinds = tuple(map(describe, given)), tuple((n, describe(v)) for n, v in named.items())
        key = (type(module), shapes, kinds, describe(result))
        if key not in groups:
            groups[key] = ModuleGroup([_kept(value) for value in given], dict(named), result)
        group = groups[key]
        group.calls += 1
        if module not in group.modules:
            group.modules.append(module)
        role = next((part for part in reversed(place.split(".")) if not part.isdigit()), place)
        if role not in group.places:
            group.places.append(role)

    model.begin()
    with _hooks_on(model.module, note):
        model.step()
    _name(list(groups.values()))
    return list(groups.values())


@contextmanager
def _hooks_on(model: torch.nn.Module, note: Any) -> Iterator[None]:
    def hook(place: str) -> Any:
        return lambda module, given, named, result: note(place, module, given, named, result)

    handles = [
        module.register_forward_hook(hook(place), with_kwargs=True)
        for place, module in model.named_modules()
        if module is not model
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _kept(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _name(groups: Sequence[ModuleGroup]) -> None:
    """By their classes, the later ones of a class with a number."""
    known: dict[str, int] = {}
    for group in groups:
        word = WORD.sub("_", group.kind).lower()
        known[word] = known.get(word, 0) + 1
        group.name = word if known[word] == 1 else f"{word}_{known[word]}"
