"""The judge's side of shared buffers: a pool of call slots in one block of memory, mapped by both duellists."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from functools import reduce

import torch

from hillclimb.harness.case.contract import Spec, Tensors
from hillclimb.harness.case.operands import strides_of
from hillclimb.harness.channel.layout import Array, Shapes, SlotLayout
from hillclimb.harness.channel.memory import HostMemory, Memory
from hillclimb.harness.channel.strides import Shape

WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers as wide as each float. The poison of a float output before a call is -1 in all of them: every byte
0xFF, which is NaN in every float format. No other dtype has a value that can be no right answer; its poison is drawn
anew for every call, so that what leaves it standing is right by chance alone."""

Words = tuple[torch.Tensor, bool]
"""A word of each slot, and whether the poison in it tells that it was not written."""


class Arena:
    """Inputs, outputs and guard zones of every slot, owned by the judge."""

    def __init__(self, layout: SlotLayout, allocate: Callable[[int], Memory] = HostMemory) -> None:
        self.layout = layout
        self._memory = allocate(layout.nbytes)
        self._slots = self._memory.bytes.view(layout.slots, layout.stride)
        self._inputs: dict[int, Tensors] = {}
        longest = max(end - start for start, end in layout.guards())
        pattern = bytearray(secrets.token_bytes(longest))
        self._guard = torch.frombuffer(pattern, dtype=torch.uint8).to(self._slots.device)
        for start, end in layout.guards():
            self._slots[:, start:end] = self._guard[: end - start]

    @property
    def descriptor(self) -> int:
        return self._memory.descriptor

    def close(self) -> None:
        """Give the memory back; whoever else has mapped it keeps it for as long as they live."""
        self._inputs.clear()
        del self._slots
        self._memory.close()

    def inputs(self, slot: int) -> Tensors:
        """Kept: thousands of slots are filled again and again."""
        if slot not in self._inputs:
            self._inputs[slot] = {a.name: self._view(a, slot) for a in self.layout.inputs}
        return self._inputs[slot]

    def outputs(self, slot: int) -> Tensors:
        """In the contract's order, those that are inputs changed in place included."""
        found = {a.name: self._view(a, slot) for a in (*self.layout.changed, *self.layout.outputs)}
        return {name: found[name] for name in self.layout.results}

    def fill(self, slot: int, values: Tensors) -> None:
        """Write one call's inputs."""
        for name, tensor in self.inputs(slot).items():
            tensor.copy_(values[name])

    def fill_all(self, slots: range, values: Tensors) -> None:
        """Write the inputs of many calls, of each a tensor with one row a slot; all of them C-contiguous."""
        for array in self.layout.inputs:
            if not array.nbytes:
                continue
            width = math.gcd(array.nbytes, max(WORDS))
            rows = values[array.name].reshape(len(slots), -1).view(torch.uint8)
            columns = self._columns(array)[slots.start : slots.stop]
            columns.view(WORDS[width]).copy_(rows.view(WORDS[width]))

    def poison(self, slots: range) -> None:
        """Overwrite outputs, so that what is found there later was written meanwhile."""
        for array in self.layout.outputs:
            width = math.gcd(array.nbytes, max(WORDS))  # a GPU fills bytes at a fifth of its bandwidth
            word = int.from_bytes(_poison_of(getattr(torch, array.dtype), width), "little", signed=True)
            self._columns(array)[slots.start : slots.stop].view(WORDS[width]).fill_(word)

    def first_unwritten_slot(self, slots: range) -> int | None:
        """The first slot in which a float element of an output still carries the poison, bit for bit.

        Outputs that need not be written whole are not looked at, nor are inputs changed in place.
        """
        for array in self.layout.outputs:
            dtype: torch.dtype = getattr(torch, array.dtype)
            if self._is_told_by_poison(array):
                rows = self._columns(array)[slots.start : slots.stop]
                for row in _rows_with_nan(rows.view(dtype)):
                    if bool((rows[row].view(WORDS[dtype.itemsize]) == -1).any()):
                        return slots.start + row
        return None

    def words(self, slots: range, at: float) -> list[Words]:
        """One word of every output, `at` of 0 to 1 into it: for each output one in every slot, as it lies there.

        Of an output that cannot be told by its poison as well: reading it waits for whatever still writes it.
        """
        found = []
        for array in (*self.layout.outputs, *self.layout.changed):
            if not array.nbytes:
                continue
            dtype: torch.dtype = getattr(torch, array.dtype)
            words = self._columns(array)[slots.start : slots.stop].view(WORDS[dtype.itemsize])
            word = words[:, min(int(at * words.shape[1]), words.shape[1] - 1)]
            found.append((word, self._is_told_by_poison(array)))
        return found

    def keep_changed(self, slots: range) -> list[Tensors]:
        """What lies in the inputs that calls change in place, for `restore_changed`."""
        return [{a.name: self._view(a, slot).clone() for a in self.layout.changed} for slot in slots]

    def restore_changed(self, slots: range, kept: Sequence[Tensors]) -> None:
        for slot, values in zip(slots, kept, strict=True):
            for name, value in values.items():
                self.inputs(slot)[name].copy_(value)

    def words_of_32_bits(self) -> torch.Tensor:
        """All of the memory, guard zones included."""
        return self._slots.flatten().view(torch.int32)

    def has_intact_guards(self) -> bool:
        return all(
            bool((self._slots[:, start:end] == self._guard[: end - start]).all())
            for start, end in self.layout.guards()
        )

    def _is_told_by_poison(self, array: Array) -> bool:
        """Whether what still carries the poison was not written."""
        is_whole = array in self.layout.outputs and array.name not in self.layout.partial
        dtype: torch.dtype = getattr(torch, array.dtype)
        return is_whole and dtype.is_floating_point

    def _columns(self, array: Array) -> torch.Tensor:
        """The array's bytes in every slot, one row a slot."""
        return self._slots[:, array.offset : array.offset + array.nbytes]

    def _view(self, array: Array, slot: int) -> torch.Tensor:
        flat = self._columns(array)[slot].view(getattr(torch, array.dtype))
        return (
            flat.view(array.shape) if array.strides is None else flat.as_strided(array.shape, array.strides)
        )


def _poison_of(dtype: torch.dtype, width: int) -> bytes:
    """The poison of `width` bytes of an output."""
    if dtype.is_floating_point:
        return b"\xff" * width
    if dtype is torch.bool:  # no other byte is one
        return bytes(secrets.randbits(1) for _ in range(width))
    return secrets.token_bytes(width)


def first_poisoned(words: Sequence[Words]) -> int | None:
    """The first row in which a word still carries the poison, which only floats can be told by.

    All are read by kernels, which have to wait for whatever still runs on the device, and not by copies, which need
    not; the device is asked once where nothing is poisoned, since that is timed.
    """
    poisoned = [word == -1 if can_tell else word != word for word, can_tell in words]
    if not words or not bool(reduce(torch.logical_or, (rows.any() for rows in poisoned))):
        return None
    return min(int(rows.nonzero()[0]) for rows in poisoned if bool(rows.any()))


def _rows_with_nan(values: torch.Tensor) -> list[int]:
    """In order, all that hold a NaN, such as the poison, and perhaps some whose sum is none."""
    if values.element_size() == 1:  # torch adds up no such floats
        return (values.view(torch.int8) == -1).any(dim=1).nonzero().flatten().tolist()
    sums = values.sum(dim=1, dtype=torch.promote_types(values.dtype, torch.float32))
    return sums.isnan().nonzero().flatten().tolist()


def is_poison(values: torch.Tensor) -> torch.Tensor:
    """Of every float, whether it carries the poison, bit for bit."""
    return values.view(WORDS[values.dtype.itemsize]) == -1


def shapes_of(tensors: Tensors | dict[str, Spec]) -> Shapes:
    """Names, shapes, dtypes and strides of tensors or specs, as `layout.lay_out` takes them."""
    return [_shape_of(name, tensor) for name, tensor in tensors.items()]


def _shape_of(name: str, one: torch.Tensor | Spec) -> tuple[str, Shape, str] | tuple[str, Shape, str, Shape]:
    shape, dtype, strides = tuple(one.shape), str(one.dtype).removeprefix("torch."), strides_of(one)
    return (name, shape, dtype) if strides is None else (name, shape, dtype, strides)
