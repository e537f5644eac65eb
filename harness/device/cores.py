"""How many CPUs this process may keep busy: those it may run on, and no more than its cgroups' quota pays for."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

PROC_SELF = Path("/proc/self")


@cache
def usable_cpus() -> int:
    """At least 1. Asked once: in a duel this process is on a core of its own."""
    return count_cpus(len(os.sched_getaffinity(0)), cpu_quotas())


def count_cpus(allowed: int, quotas: Iterator[float]) -> int:
    """Whole CPUs out of those that affinity allows and the quotas, in CPUs, of every cgroup on the way up."""
    return max(1, math.floor(min([float(allowed), *quotas])))


def cpu_quotas(proc: Path = PROC_SELF) -> Iterator[float]:
    """CPUs' worth of time that the process's cgroup, and each above it, may use (cgroups(7), versions 1 and 2).

    Groups without a quota, and what cannot be read, are left out.
    """
    for folder in cgroup_folders("cpu", proc):
        with suppress(OSError, ValueError, ZeroDivisionError):
            if (quota := _read_quota(folder)) is not None:
                yield quota


def cgroup_folders(controller: str, proc: Path = PROC_SELF) -> Iterator[Path]:
    """Of the process's cgroup that has this controller, and of each above it.

    `proc` has `cgroup` and `mountinfo` in the form of proc(5); where they cannot be read there is none.
    """
    try:
        groups = (proc / "cgroup").read_text().splitlines()
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, group = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            yield from _folders(mounts, group, controller if controllers else "")


def _folders(mounts: list[str], group: str, controller: str) -> Iterator[Path]:
    """The folder of a cgroup below each mount of its hierarchy, and those above it; no controller: version 2."""
    for line in mounts:
        own, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind != ("cgroup" if controller else "cgroup2"):
            continue
        if controller and controller not in options.split(" ")[-1].split(","):
            continue
        root, mounted_at = own.split(" ")[3:5]
        inside = PurePosixPath(group)
        below = inside.relative_to(root) if inside.is_relative_to(root) else PurePosixPath()
        for part in (below, *below.parents):
            yield Path(mounted_at) / part


def _read_quota(folder: Path) -> float | None:
    """CPUs; None where the group has no quota."""
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text().split()
    elif (folder / "cpu.cfs_quota_us").exists():
        quota = (folder / "cpu.cfs_quota_us").read_text()
        period = (folder / "cpu.cfs_period_us").read_text()
    else:
        return None
    if quota == "max" or int(quota) <= 0:
        return None
    return int(quota) / int(period)
