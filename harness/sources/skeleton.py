"""The arguments of one call without the contents of their tensors, and how the two are put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hillclimb.harness.channel.layout import Attribute


@dataclass(frozen=True)
class Drawn:
    """One call's arguments, its weights by name, and what its module is made with."""

    arguments: Any
    weights: dict[str, torch.Tensor]
    sizes: Sequence[Any]


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor stands among the arguments."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    path: str
    """As Python writes it: `[0]`, `[1]['weight']`."""


@dataclass(frozen=True)
class Skeleton:
    """`leaves` are all leaves in order, a tensor's being its place."""

    structure: pytree.TreeSpec
    leaves: tuple[Any, ...]
    sizes: tuple[Any, ...]

    @property
    def places(self) -> list[TensorPlace]:
        return [leaf for leaf in self.leaves if isinstance(leaf, TensorPlace)]

    def scalars(self) -> list[Any]:
        """What is no tensor: the module's sizes, then the others in order."""
        return [*self.sizes, *(leaf for leaf in self.leaves if not isinstance(leaf, TensorPlace))]

    def fill(self, tensors: Sequence[torch.Tensor]) -> Drawn:
        """The call that these tensors belong to."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, TensorPlace) else leaf for leaf in self.leaves]
        arguments, weights = pytree.tree_unflatten(leaves, self.structure)
        return Drawn(arguments, weights, self.sizes)


def skeleton_of(drawn: Drawn) -> Skeleton:
    found, structure = pytree.tree_flatten_with_path((drawn.arguments, drawn.weights))
    leaves = [
        TensorPlace(tuple(leaf.shape), leaf.dtype, pytree.keystr(path))
        if isinstance(leaf, torch.Tensor)
        else leaf
        for path, leaf in found
    ]
    return Skeleton(structure, tuple(leaves), tuple(drawn.sizes))


def tensors_of(drawn: Drawn) -> list[torch.Tensor]:
    """In the order of the skeleton's places."""
    leaves = pytree.tree_leaves((drawn.arguments, drawn.weights))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def attribute(value: Any) -> Attribute:
    """As a keyword argument has it: lists are tuples. What is none is refused where contracts are checked."""
    given: Attribute = tuple(map(attribute, value)) if isinstance(value, list | tuple) else value
    return given
