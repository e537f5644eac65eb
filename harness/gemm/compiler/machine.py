"""How much this machine can compile at once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hillclimb.harness.device.cores import PROC_SELF, cgroup_folders, usable_cpus

BYTES_A_JOB = 2 << 30
"""Memory that a compiler of CUTLASS's templates takes."""


def default_jobs() -> int:
    """How many compilers this machine carries, or the container that this process is in."""
    return max(1, min(usable_cpus(), free_memory() // BYTES_A_JOB))


def free_memory(proc: Path = PROC_SELF) -> int:
    """Bytes: of the machine, and no more than the cgroups on the way up leave (cgroups(7), versions 1 and 2)."""
    lines = (proc.parent / "meminfo").read_text().splitlines()
    available = next(line for line in lines if line.startswith("MemAvailable"))
    free = [int(available.split()[1]) * 1024]
    for folder in cgroup_folders("memory", proc):
        with suppress(OSError, ValueError):
            free.append(_left(folder))
    return max(0, min(free))


def _left(folder: Path) -> int:
    """What a group may still take; its files' pages give way. Raises ValueError where it has no limit."""
    is_new = (folder / "memory.max").exists()
    limit, used, pages = (
        ("memory.max", "memory.current", "inactive_file")
        if is_new
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    most = int((folder / limit).read_text())
    told = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return most - int((folder / used).read_text()) + int(told.get(pages, 0))
