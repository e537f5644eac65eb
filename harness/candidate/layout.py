"""Where the arrays of a pool of call slots lie in one block of shared memory. Torch-free: both sides read it.

Every slot holds one call's inputs, then its outputs, each between guard zones:

    guard | input 0 | guard | input 1 | guard | output 0 | guard     (slot 0)
    guard | input 0 | ...                                            (slot 1, `stride` bytes on)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from harness.dtypes import ITEM_BYTES

if TYPE_CHECKING:
    from harness.case.contract import Attributes

ALIGNMENT = 256
GUARD = 1024
"""Bytes of guard zone on each side of an array."""


@dataclass(frozen=True)
class Array:
    """One C-contiguous array; `offset` counts bytes from the start of its slot."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """Torch's name for it, e.g. bfloat16; NumPy has the same names for those it knows."""
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Layout:
    """`slots` copies of the same arrays, `stride` bytes apart."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    stride: int
    slots: int
    attributes: Attributes = field(default_factory=dict)
    """Keyword arguments of every call."""

    @property
    def nbytes(self) -> int:
        return self.stride * self.slots

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Layout:
        inputs, outputs = (
            tuple(Array(a["name"], tuple(a["shape"]), a["dtype"], a["offset"]) for a in body[side])
            for side in ("inputs", "outputs")
        )
        return Layout(inputs, outputs, body["stride"], body["slots"], body["attributes"])

    def guards(self) -> list[tuple[int, int]]:
        """(start, end) in bytes, from the slot's start, of everything that is not an array."""
        spans, position = [], 0
        for array in (*self.inputs, *self.outputs):
            spans.append((position, array.offset))
            position = array.offset + array.nbytes
        return [*spans, (position, self.stride)]


Shapes = Sequence[tuple[str, tuple[int, ...], str]]
"""(name, shape, dtype) of each array."""


@dataclass(frozen=True)
class Signature:
    """What every call of one problem is handed: arrays, inputs before outputs, and keyword arguments."""

    arrays: Shapes
    attributes: Attributes = field(default_factory=dict)


def lay_out(inputs: Shapes, outputs: Shapes, slots: int, attributes: Attributes | None = None) -> Layout:
    position = 0
    placed: list[Array] = []
    for name, shape, dtype in (*inputs, *outputs):
        array = Array(name, shape, dtype, _align(position + GUARD))
        placed.append(array)
        position = array.offset + array.nbytes
    stride = _align(position + GUARD)
    count = len(inputs)
    return Layout(tuple(placed[:count]), tuple(placed[count:]), stride, slots, attributes or {})


def _align(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
