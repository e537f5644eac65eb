"""The machine that a judge runs on: its CPUs' counters, its name, its software. No framework is imported here."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hillclimb.harness.device.cores import usable_cpus

STEAL_LIMIT = 0.10
"""Share of CPU time taken by the hypervisor above which a block is measured again."""

OTHERS_LIMIT = 0.5
"""CPUs' worth of other processes' work above which a block is measured again."""

TICKS = os.sysconf("SC_CLK_TCK")

PACKAGES = ("torch", "triton", "numpy", "numba")


@dataclass(frozen=True)
class CpuCounters:
    """Of /proc/stat: CPU seconds since boot, all CPUs together, and the clock they were read at."""

    busy: float
    steal: float
    clock: float


@dataclass(frozen=True)
class HostLoad:
    """What the CPUs did over some time, besides the duel."""

    steal: float
    """Share of CPU time taken by the hypervisor, 0 to 1."""
    others: float
    """CPUs' worth of work done by processes that are not part of the duel."""


def read_counters() -> CpuCounters:
    fields = [int(f) / TICKS for f in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _wait, irq, softirq, steal = fields
    return CpuCounters(user + nice + system + irq + softirq, steal, time.perf_counter())


@cache
def count_of_counters() -> int:
    """CPUs that /proc/stat sums up, whatever this process may use of them."""
    lines = Path("/proc/stat").read_text().splitlines()
    return sum(re.match(r"cpu\d", line) is not None for line in lines) or 1


def load_since(start: CpuCounters, own_seconds: float) -> HostLoad:
    """What happened since `start`, less the `own_seconds` of CPU time that duel and judge used themselves.

    The counters go in ticks, so that in a short time they may go further than all CPUs can: then it is all of them.
    """
    now, cpus = read_counters(), count_of_counters()
    elapsed = max(now.clock - start.clock, 1e-9)
    others = max(0.0, now.busy - start.busy - own_seconds) / elapsed
    steal = (now.steal - start.steal) / elapsed / cpus
    return HostLoad(steal=round(min(steal, 1.0), 4), others=round(min(others, cpus), 3))


def disturbances(steal: float, others: float, others_limit: float = OTHERS_LIMIT) -> tuple[str, ...]:
    """What of the host's load disturbs a block."""
    seen = {"steal": steal > STEAL_LIMIT, "other processes": others > others_limit}
    return tuple(name for name, is_seen in seen.items() if is_seen)


def raise_priority() -> None:
    """Run this process, and the candidates it starts, ahead of everything else on the machine, where allowed.

    It takes root or CAP_SYS_NICE. `scripts/experiments/cpu_noise.py` measures what it brings.
    """
    with suppress(PermissionError):
        os.nice(-20)


def name() -> str:
    """The CPU model and how many of its CPUs this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Model"))]
    return f"{models[0] if models else platform.machine()}, {usable_cpus()} CPUs"


def identity() -> str:
    """The machine id, or the host's name where there is none."""
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        if path.is_file() and path.read_text().strip():
            return path.read_text().strip()
    return platform.node()


def software(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of everything a result may depend on, and the priority it was measured at."""
    found = {"python": platform.python_version(), "kernel": platform.release(), "nice": str(os.nice(0))}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
