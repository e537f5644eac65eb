"""What was counted of one GPU kernel, and how it is told; free of frameworks, for proposers read it too."""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.harness.records import KernelCounters


def summary(kernel: KernelCounters) -> str:
    """One line of what was counted, for prompts and people."""
    return ", ".join(_facts(kernel)) or "no counters"


def _facts(kernel: KernelCounters) -> Iterator[str]:
    if kernel.bytes_per_second is not None:
        yield f"{kernel.bytes_per_second / 1e9:,.0f} GB/s of DRAM"
    for share, what in (
        (kernel.l2_hits, "L2 hits"),
        (kernel.memory, "of memory peak"),
        (kernel.arithmetic, "of SM peak"),
        (kernel.tensor_cores, "tensor cores busy"),
        (kernel.occupancy, "occupancy"),
    ):
        if share is not None:
            yield f"{share:.0%} {what}"
    if kernel.registers is not None:
        yield f"{kernel.registers:.0f} registers a thread"
    if kernel.shared_memory:
        yield f"{kernel.shared_memory / 1024:,.1f} KiB shared memory a block"
    if kernel.local_memory is not None:
        yield f"{kernel.local_memory:,.0f} local memory instructions" if kernel.local_memory else "no spills"
    if kernel.stalls:
        yield "warps wait for " + ", ".join(f"{name} {cycles:.1f}" for name, cycles in kernel.stalls)
