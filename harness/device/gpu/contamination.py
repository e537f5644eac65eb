"""Whether a block on a GPU was disturbed, by what was read when it began and when it ended.

What counts: another process on the GPU, clocks that moved or were held down by heat or a failing supply, a host that
was taken away. The power cap alone does not: a matrix product runs into it all the time.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hillclimb.harness.device import host
from hillclimb.harness.device.device import GpuSample
from hillclimb.harness.device.host import HostLoad
from hillclimb.harness.records import Environment

MAX_CLOCK_CHANGE = 0.08
"""Share by which a clock may change within a block. Of 708 recorded blocks of a power-limited matrix product 3.5 %
changed by more, and those scattered twice as widely as the others (docs/decisions/0010-the-gpu-guard.md)."""

DISTURBING_THROTTLE_REASONS = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
"""Throttle reasons in which a block is measured again."""

DUEL_CPUS = 3
"""CPUs that a duel on a GPU keeps busy: the judge, a candidate, and one for whatever the driver does."""

MAX_ANCESTORS = 64
"""Generations of processes that are followed upwards."""


def block_environment(load: HostLoad, start: GpuSample, end: GpuSample, tenants: int | None) -> Environment:
    """The record of one block."""
    clocks = (start.sm_mhz, end.sm_mhz)
    memory = [mhz for mhz in (start.memory_mhz, end.memory_mhz) if mhz is not None]
    told = [sample.throttle for sample in (start, end) if sample.throttle is not None]
    return Environment(
        steal=load.steal,
        others=load.others,
        sm_mhz=None if clocks[0] is None or clocks[1] is None else (clocks[0], clocks[1]),
        memory_mhz=min(memory, default=None),
        celsius=end.celsius,
        watts=end.watts,
        throttle=tuple(sorted({reason for reasons in told for reason in reasons})) if told else None,
        tenants=tenants,
    )


def disturbances(environment: Environment, cpus: int) -> tuple[str, ...]:
    """`cpus` is how many this process may use. What the driver does not tell is not held against a block."""
    seen = {
        "another process on the GPU": bool(environment.tenants),
        "GPU busy before a segment": bool(environment.crowded),
        "clocks moved": clock_change(environment) > MAX_CLOCK_CHANGE,
        **{
            f"throttled ({reason})": True
            for reason in environment.throttle or ()
            if reason in DISTURBING_THROTTLE_REASONS
        },
    }
    of_host = host.disturbances(
        environment.steal, environment.others, max(host.OTHERS_LIMIT, cpus - DUEL_CPUS)
    )
    return (*of_host, *(name for name, is_seen in seen.items() if is_seen))


def clock_change(environment: Environment) -> float:
    """How far the multiprocessors' clock moved within the block, as a share of the higher one."""
    if environment.sm_mhz is None or not max(environment.sm_mhz):
        return 0.0
    return 1 - min(environment.sm_mhz) / max(environment.sm_mhz)


def count_tenants(
    pids: Collection[int] | None, judge: int, own: Collection[int] | None, proc: Path = Path("/proc")
) -> int | None:
    """How many of the GPU's processes are not part of the duel; None where that cannot be known.

    The driver's pids are believed only where the judge, which has a context, is among them: in a container they may be
    those of another namespace. `own` None means the judge and all that descend from it.
    """
    if pids is None or judge not in pids:
        return None
    if own is not None:
        return len(set(pids) - set(own) - {judge})
    return sum(not _descends(pid, judge, proc) for pid in set(pids))


def _descends(pid: int, ancestor: int, proc: Path) -> bool:
    for _ in range(MAX_ANCESTORS):
        if pid == ancestor:
            return True
        parent = _parent(pid, proc)
        if not parent:
            return False
        pid = parent
    return False


def _parent(pid: int, proc: Path) -> int:
    """0 where there is none to be seen."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text.rsplit(")", 1)[1].split()[1])
