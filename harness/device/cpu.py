"""A CPU as the place where kernels run: its name, and what else it was doing while a block was timed."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.records import Environment

STEAL_LIMIT = 0.10
"""Share of CPU time taken by the hypervisor above which a block is measured again."""

OTHERS_LIMIT = 0.5
"""CPUs' worth of other processes' work above which a block is measured again."""

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Reading:
    """Counters of /proc/stat: CPU seconds since boot, all CPUs together, and the clock they were read at."""

    busy: float
    steal: float
    clock: float


def read_counters() -> Reading:
    fields = [int(f) / TICKS for f in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _wait, irq, softirq, steal = fields
    return Reading(user + nice + system + irq + softirq, steal, time.perf_counter())


def environment_since(start: Reading, own_seconds: float) -> Environment:
    """What happened since `start`, less the `own_seconds` of CPU time that duel and judge used themselves."""
    now = read_counters()
    elapsed = max(now.clock - start.clock, 1e-9)
    others = max(0.0, now.busy - start.busy - own_seconds) / elapsed
    steal = (now.steal - start.steal) / elapsed / (os.cpu_count() or 1)
    return Environment(steal=round(steal, 4), others=round(others, 3))


def is_contaminated(environment: Environment) -> bool:
    return environment.steal > STEAL_LIMIT or environment.others > OTHERS_LIMIT


def take_precedence() -> None:
    """Run this process, and the candidates it starts, ahead of everything else on the machine, where allowed.

    It takes root or CAP_SYS_NICE. `scripts/experiments/cpu_noise.py` measures what it brings.
    """
    with suppress(PermissionError):
        os.nice(-20)


def name() -> str:
    """The CPU model and how many of its CPUs this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Model"))]
    return f"{models[0] if models else platform.machine()}, {len(os.sched_getaffinity(0))} CPUs"


def identity() -> str:
    """The machine id, or the host's name where there is none."""
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        if path.is_file() and path.read_text().strip():
            return path.read_text().strip()
    return platform.node()


def software() -> dict[str, str]:
    """Versions of everything a result may depend on, and the priority it was measured at."""
    found = {"python": platform.python_version(), "kernel": platform.release(), "nice": str(os.nice(0))}
    for package in ("torch", "triton", "numpy", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
