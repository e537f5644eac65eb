"""One arena's call slots as a kernel on the CPU is handed them: NumPy arrays, or torch tensors on the host."""

from __future__ import annotations

import mmap
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from hillclimb.harness.channel.layout import Array, SlotLayout

Kernel = Callable[..., object]

HostView = Callable[[mmap.mmap, Array, int], Any]
"""Makes an array of mapped memory, at an offset in bytes."""


class Slots(Protocol):
    """The arrays of every slot, inputs then outputs, and ways to call a kernel on a run of them."""

    def call(self, kernel: Kernel, first: int, count: int) -> int:
        """Call it once on each slot and wait for the end; nanoseconds by this process's own clock."""

    def capture(self, kernel: Kernel, first: int, count: int) -> None:
        """Make ready whatever can be made ready for `launch` on these slots."""

    def launch(self, kernel: Kernel, first: int, count: int, fed: int = 0) -> int:
        """As `call`, the way that is timed; nanoseconds by the device's own clock where there is one.

        The `fed` slots before are run first, so that the device is still at work when the timed calls reach it: how
        long they take to be launched is no part of their time.
        """

    def close(self) -> None:
        """Let go of the memory."""


class HostSlots:
    """Slots in a memfd."""

    def __init__(self, descriptor: int, layout: SlotLayout, view: HostView) -> None:
        """Map `descriptor`, and close it; `view` makes one array at an offset in bytes."""
        memory = self._memory = mmap.mmap(descriptor, layout.nbytes)
        os.close(descriptor)
        self.arguments: Sequence[tuple[Any, ...]] = [
            tuple(view(memory, a, slot * layout.stride + a.offset) for a in (*layout.inputs, *layout.outputs))
            for slot in range(layout.slots)
        ]
        self.attributes = layout.attributes

    def call(self, kernel: Kernel, first: int, count: int) -> int:
        slots = self.arguments[first : first + count]
        start = time.perf_counter_ns()
        for arguments in slots:
            kernel(*arguments, **self.attributes)
        return time.perf_counter_ns() - start

    def capture(self, kernel: Kernel, first: int, count: int) -> None:
        """Nothing can be made ready."""

    def launch(self, kernel: Kernel, first: int, count: int, fed: int = 0) -> int:
        self.call(kernel, first - fed, fed)
        return self.call(kernel, first, count)

    def close(self) -> None:
        self.arguments = ()
        del self._memory


def numpy_slots(descriptor: int, layout: SlotLayout) -> HostSlots:
    return HostSlots(descriptor, layout, numpy_view)


def torch_slots(descriptor: int, layout: SlotLayout) -> HostSlots:
    """Tensors on the host, for Triton's interpreter."""
    return HostSlots(descriptor, layout, torch_view)


def numpy_view(memory: mmap.mmap, array: Array, offset: int) -> np.ndarray[Any, Any]:
    """An array at an offset in bytes."""
    return np.ndarray(array.shape, array.dtype, memory, offset, array.byte_strides)


def torch_view(memory: mmap.mmap, array: Array, offset: int) -> Any:
    """As `numpy_view`, a tensor."""
    import torch

    dtype: torch.dtype = getattr(torch, array.dtype)
    if not array.nbytes:  # torch makes no empty tensor of a buffer
        return torch.empty(array.shape, dtype=dtype)
    flat = torch.frombuffer(memory, dtype=torch.uint8, count=array.nbytes, offset=offset).view(dtype)
    return flat.view(array.shape) if array.strides is None else flat.as_strided(array.shape, array.strides)


def host_parameters(descriptor: int, layout: SlotLayout, view: HostView) -> dict[str, Any]:
    """The arrays of the one slot by name, which can be read; `descriptor` is closed."""
    memory = mmap.mmap(descriptor, layout.nbytes, prot=mmap.PROT_READ)
    os.close(descriptor)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not writable.*")  # torch's, of each buffer
        return {array.name: view(memory, array, array.offset) for array in layout.inputs}
