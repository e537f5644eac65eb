"""The judge's side of shared buffers on a CPU: a pool of call slots in a memfd, mapped by both duellists."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from collections.abc import Iterable

import numpy as np
import torch

from harness.candidate.layout import GUARD, Array, Layout
from harness.case.contract import Spec, Tensors

POISON = 0xFF
"""Every byte of an output before a call; NaN in every float format."""

WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers as wide as each float; the poison is -1 in all of them."""


class Arena:
    """Inputs, outputs and guard zones of every slot, owned by the judge."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.descriptor = os.memfd_create("hillclimb-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, layout.nbytes)
        _seal_size(self.descriptor)
        self._memory = mmap.mmap(self.descriptor, layout.nbytes)
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._guard = np.frombuffer(secrets.token_bytes(GUARD + layout.stride), np.uint8)
        for start, end in self._guard_spans():
            self._slice(start, end).copy_(torch.from_numpy(self._guard[: end - start].copy()))

    def close(self) -> None:
        """Give the memory back; whoever else has mapped it keeps it for as long as they live."""
        del self._bytes, self._memory
        os.close(self.descriptor)

    def inputs(self, slot: int) -> Tensors:
        return {a.name: self._view(a, slot) for a in self.layout.inputs}

    def outputs(self, slot: int) -> Tensors:
        return {a.name: self._view(a, slot) for a in self.layout.outputs}

    def fill(self, slot: int, values: Tensors) -> None:
        """Write one call's inputs."""
        for name, tensor in self.inputs(slot).items():
            tensor.copy_(values[name])

    def poison(self, slots: Iterable[int]) -> None:
        """Overwrite outputs, so that what is found there later was written meanwhile."""
        for slot in slots:
            for array in self.layout.outputs:
                self._raw(array, slot).fill_(POISON)

    def is_unwritten(self, slot: int, name: str) -> bool:
        """Whether any float element of an output still carries the poison, bit for bit."""
        array = next(a for a in self.layout.outputs if a.name == name)
        if not self._view(array, slot).is_floating_point():
            return False
        words = self._raw(array, slot).view(WORDS[np.dtype(array.dtype).itemsize])
        return bool((words == -1).any())

    def guards_are_intact(self) -> bool:
        return all(
            np.array_equal(self._slice(start, end).numpy(), self._guard[: end - start])
            for start, end in self._guard_spans()
        )

    def _guard_spans(self) -> Iterable[tuple[int, int]]:
        for slot in range(self.layout.slots):
            base = slot * self.layout.stride
            for start, end in self.layout.guards():
                yield base + start, base + end

    def _slice(self, start: int, end: int) -> torch.Tensor:
        return self._bytes[start:end]

    def _raw(self, array: Array, slot: int) -> torch.Tensor:
        start = slot * self.layout.stride + array.offset
        return self._slice(start, start + array.nbytes)

    def _view(self, array: Array, slot: int) -> torch.Tensor:
        return self._raw(array, slot).view(getattr(torch, array.dtype)).view(array.shape)


def shapes_of(tensors: Tensors | dict[str, Spec]) -> list[tuple[str, tuple[int, ...], str]]:
    """(name, shape, dtype) of tensors or specs, as `layout.lay_out` takes them."""
    return [(name, tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in tensors.items()]


def _seal_size(descriptor: int) -> None:
    """Nobody who maps this memory may shrink it under the judge's feet, or grow it."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
