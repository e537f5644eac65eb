"""How a candidate process is launched and timed: limits, arrays, calls of a turn, and the times found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hillclimb.harness.device.cores import usable_cpus


@dataclass(frozen=True)
class ProcessLimits:
    """What one candidate process may use."""

    prepare_seconds: float
    call_seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class LaunchSpec:
    """How a kernel is handed its arrays, and what of the machine its process is granted for that."""

    tensors: Literal["numpy", "torch", "cuda", "meta"] = "numpy"
    """NumPy arrays, torch tensors on the host or on the one GPU; meta: shapes alone, for compiling without a GPU."""
    architecture: int = 0
    """What Triton compiles for where tensors are meta."""
    launch: Literal["graph", "eager"] = "eager"
    preload: tuple[str, ...] = ()
    """Trusted modules imported before the workspace."""
    is_walled: bool = False
    """Whether the code of finished libraries is taken away from the process before the workspace is imported."""
    devices: tuple[str, ...] = ()
    """Device nodes."""
    kernel_folder: Path | None = None
    """Folder of what Triton compiled for it earlier; it is given a copy."""
    compiler_flags: tuple[str, ...] = ()
    """Of a kernel whose source is compiled when it is loaded."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def load_fields(self) -> dict[str, object]:
        """What the runner is told of it."""
        return {
            "tensors": self.tensors,
            "launch": self.launch,
            "preload": self.preload,
            "architecture": self.architecture,
            "kernels": str(self.kernel_folder) if self.kernel_folder else "",
            "walled": self.is_walled,
            "flags": self.compiler_flags,
        }

    def variables(self, knobs: Mapping[str, str]) -> dict[str, str]:
        """The process's environment, besides what the sandbox gives; what is not the knobs' to say comes last."""
        walled = ONE_THREAD if self.is_walled else {}
        return {**thread_variables(), **knobs, **self.environment, **walled}


@dataclass(frozen=True)
class SegmentPlan:
    """What one side runs when it is timed, a slot a call, from the first slot on."""

    timed_calls: int
    """Timed calls, the last ones."""
    lead_in_calls: int = 0
    """Calls before the word to go, since the first milliseconds after a switch between processes are slower."""
    backlog_calls: int = 0
    """Calls from that word on that keep the device busy until the timed ones have been launched."""

    @property
    def slots(self) -> range:
        return range(self.lead_in_calls + self.backlog_calls + self.timed_calls)

    @property
    def timed(self) -> range:
        return self.slots[self.lead_in_calls + self.backlog_calls :]

    def runs(self) -> list[tuple[int, int]]:
        """(first slot, calls) of what is launched together."""
        firsts = (0, self.lead_in_calls, self.timed.start)
        return [
            (f, n)
            for f, n in zip(firsts, (self.lead_in_calls, self.backlog_calls, self.timed_calls), strict=True)
            if n
        ]


@dataclass(frozen=True)
class Timing:
    """One timed turn."""

    wall_seconds: float
    """By the judge's clock, from the word to go to the answer: the calls fed and those timed."""
    wall_seconds_with_lead_in: float
    """By the judge's clock, from waking the process until its work is proven to be done: all calls."""
    event_seconds: float
    """By the candidate's own device events, the timed calls; on a CPU, which has none, by the judge's clock."""

    def per_call(self, plan: SegmentPlan) -> Timing:
        """Of one call."""
        ran, every = plan.backlog_calls + plan.timed_calls, len(plan.slots)
        return Timing(
            self.wall_seconds / ran,
            self.wall_seconds_with_lead_in / every,
            self.event_seconds / plan.timed_calls,
        )


MAX_SOURCE_BYTES = 1 << 20
"""Bytes of a source file that is read; policy refuses larger ones where they may be imported."""


def mentions(tree: Path, word: str) -> bool:
    """Whether any Python file of a workspace has the word in it."""
    files = (
        path for path in tree.rglob("*.py") if path.is_file() and path.stat().st_size <= MAX_SOURCE_BYTES
    )
    return any(word in path.read_text(errors="replace") for path in files)


def thread_variables() -> dict[str, str]:
    """As many threads as this process may use CPUs, for libraries that start them."""
    threads = str(usable_cpus())
    return {"NUMBA_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}


ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables under which BLAS starts no threads, which could not go on where its code is taken away."""


def do_nothing() -> None:
    """Where there is nothing to do."""
