"""Where the arrays of a pool of call slots lie in one block of shared memory. Torch-free: both sides read it.

Every slot holds one call's inputs, then those of its outputs that are no inputs, each between guard zones:

    guard | input 0 | guard | input 1 | guard | output 0 | guard     (slot 0)
    guard | input 0 | ...                                            (slot 1, `stride` bytes on)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hillclimb.harness.channel.dtypes import ITEM_BYTES
from hillclimb.harness.channel.strides import Shape, contiguous_strides, element_span

Attribute = bool | int | float | str | None | tuple["Attribute", ...]
Attributes = Mapping[str, Attribute]
"""What of an operator is no tensor: {"stride": (2, 1), "causal": True, "reduction": "mean", "window": None}."""


def read_attributes(told: Mapping[str, Any]) -> dict[str, Attribute]:
    """As they were before they crossed as JSON, which has lists for tuples."""
    return {name: _read_attribute(value) for name, value in told.items()}


def _read_attribute(value: Any) -> Attribute:
    return tuple(_read_attribute(part) for part in value) if isinstance(value, list) else value


ALIGNMENT = 256
GUARD = 1024
"""Bytes of guard zone on each side of an array."""


@dataclass(frozen=True)
class Array:
    """One array; `offset` counts bytes from the start of its slot."""

    name: str
    shape: Shape
    dtype: str
    """Torch's name for it, e.g. bfloat16; NumPy has the same names for those it knows."""
    offset: int
    strides: Shape | None = None
    """Elements from one index to the next in each dimension; None: C-contiguous."""

    @property
    def nbytes(self) -> int:
        """Of the memory it lies in, gaps included."""
        strides = contiguous_strides(self.shape) if self.strides is None else self.strides
        return element_span(self.shape, strides) * ITEM_BYTES[self.dtype]

    @property
    def byte_strides(self) -> Shape | None:
        """As NumPy counts them; None: C-contiguous."""
        if self.strides is None:
            return None
        return tuple(stride * ITEM_BYTES[self.dtype] for stride in self.strides)


@dataclass(frozen=True)
class SlotLayout:
    """`slots` copies of the same arrays, `stride` bytes apart."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    """Those that are no inputs."""
    stride: int
    slots: int
    attributes: Attributes = field(default_factory=dict)
    """Keyword arguments of every call."""
    results: tuple[str, ...] = ()
    """Names of all outputs in the contract's order, those that are inputs included."""
    partial: tuple[str, ...] = ()
    """Names of outputs that need not be written whole."""

    @property
    def nbytes(self) -> int:
        return self.stride * self.slots

    @property
    def changed(self) -> tuple[Array, ...]:
        """Inputs that are outputs, too: a call changes them in place."""
        return tuple(array for array in self.inputs if array.name in self.results)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SlotLayout:
        inputs, outputs = (tuple(_read_array(told) for told in body[side]) for side in ("inputs", "outputs"))
        return SlotLayout(
            inputs,
            outputs,
            body["stride"],
            body["slots"],
            read_attributes(body["attributes"]),
            tuple(body["results"]),
            tuple(body["partial"]),
        )

    def guards(self) -> list[tuple[int, int]]:
        """(start, end) in bytes, from the slot's start, of everything that is not an array."""
        spans, position = [], 0
        for array in (*self.inputs, *self.outputs):
            spans.append((position, array.offset))
            position = array.offset + array.nbytes
        return [*spans, (position, self.stride)]


Shapes = Sequence[tuple[str, Shape, str] | tuple[str, Shape, str, Shape]]
"""(name, shape, dtype) of each array, and the strides of one that is not C-contiguous."""


@dataclass(frozen=True)
class CallSignature:
    """What every call of one problem is handed: arrays, inputs before other outputs, and keyword arguments."""

    arrays: Shapes
    attributes: Attributes = field(default_factory=dict)


def call_order(inputs: Shapes, outputs: Shapes) -> Shapes:
    """The arrays of a call: an output that has the name of an input is that input."""
    names = {name for name, *_ in inputs}
    return [*inputs, *(output for output in outputs if output[0] not in names)]


def lay_out(
    inputs: Shapes,
    outputs: Shapes,
    slots: int,
    attributes: Attributes | None = None,
    partial: Iterable[str] = (),
) -> SlotLayout:
    position = 0
    placed: list[Array] = []
    for name, shape, dtype, *strides in call_order(inputs, outputs):
        array = Array(name, shape, dtype, _align(position + GUARD), strides[0] if strides else None)
        placed.append(array)
        position = array.offset + array.nbytes
    count = len(inputs)
    return SlotLayout(
        tuple(placed[:count]),
        tuple(placed[count:]),
        _align(position + GUARD),
        slots,
        attributes or {},
        tuple(name for name, *_ in outputs),
        tuple(partial),
    )


def _read_array(told: Mapping[str, Any]) -> Array:
    strides = None if told["strides"] is None else tuple(told["strides"])
    return Array(told["name"], tuple(told["shape"]), told["dtype"], told["offset"], strides)


def _align(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
