"""One arena's call slots on a GPU, as a kernel is handed them: launched one by one, or replayed as a CUDA graph."""

from __future__ import annotations

from functools import cache
from typing import Literal

import torch

from hillclimb.harness.candidate.slots import Kernel
from hillclimb.harness.channel import vmm
from hillclimb.harness.channel.layout import Array, SlotLayout


class CudaSlots:
    """Slots in device memory that the judge allocated. Raises vmm.CudaError where they cannot be mapped."""

    def __init__(self, descriptor: int, layout: SlotLayout, launch: Literal["graph", "eager"]) -> None:
        """Map `descriptor`, and close it."""
        create_context()
        self._mapping = vmm.adopt(descriptor, layout.nbytes)
        self.arguments = [
            tuple(
                _tensor(self._mapping, array, slot * layout.stride)
                for array in (*layout.inputs, *layout.outputs)
            )
            for slot in range(layout.slots)
        ]
        self._attributes = layout.attributes
        self._replayed = launch == "graph"
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def call(self, kernel: Kernel, first: int, count: int) -> int:
        return self._time(lambda: self._launch_each(kernel, first, count))

    def capture(self, kernel: Kernel, first: int, count: int) -> None:
        """Capture the launches of these calls, and replay them once: the first replay uploads the graph."""
        if self._replayed:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._launch_each(kernel, first, count)
            graph.replay()
            torch.cuda.synchronize()
            self._graphs[first, count] = graph

    def launch(self, kernel: Kernel, first: int, count: int, fed: int = 0) -> int:
        if fed:
            self._launch(kernel, first - fed, fed)
        return self._time(lambda: self._launch(kernel, first, count))

    def close(self) -> None:
        torch.cuda.synchronize()
        self._graphs.clear()
        self.arguments.clear()
        self._mapping.unmap()

    def _launch(self, kernel: Kernel, first: int, count: int) -> None:
        """Queue what `launch` runs of these calls."""
        if self._replayed:
            self._graphs[first, count].replay()
        else:
            self._launch_each(kernel, first, count)

    def _launch_each(self, kernel: Kernel, first: int, count: int) -> None:
        for arguments in self.arguments[first : first + count]:
            kernel(*arguments, **self._attributes)

    def _time(self, work: Kernel) -> int:
        """Nanoseconds between events on the current stream."""
        self._start.record()
        work()
        self._end.record()
        torch.cuda.synchronize()
        return round(float(self._start.elapsed_time(self._end)) * 1e6)


def cuda_parameters(descriptor: int, layout: SlotLayout) -> dict[str, torch.Tensor]:
    """The arrays of the one slot by name; `descriptor` is closed. Raises vmm.CudaError where it cannot be mapped."""
    create_context()
    mapping = vmm.adopt(descriptor, layout.nbytes)
    return {array.name: _tensor(mapping, array, 0) for array in layout.inputs}


def _tensor(mapping: vmm.DeviceMapping, array: Array, start: int) -> torch.Tensor:
    """An array of the slot that starts there. No view of another tensor: torch.compile takes few of such."""
    dtype: torch.dtype = getattr(torch, array.dtype)
    if not array.nbytes:
        return torch.empty(array.shape, dtype=dtype, device=f"cuda:{vmm.DEVICE}")
    flat = vmm.as_bytes(mapping, array.nbytes, start + array.offset).view(dtype)
    return flat.view(array.shape) if array.strides is None else flat.as_strided(array.shape, array.strides)


@cache
def create_context() -> None:
    """Make the context, once, late: a process that was forked must not have one yet."""
    vmm.use_spin_scheduling()
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.zeros(1, device=f"cuda:{vmm.DEVICE}")
