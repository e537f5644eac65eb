"""One process of cutlass_profiler over some kernels, and what it settled about them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.errors import MachineError
from hillclimb.harness.gemm.processes import dying_with_parent
from hillclimb.harness.gemm.profiler.output import ProfilerRow, last_announced, last_words
from hillclimb.harness.gemm.profiler.results import UNSUPPORTED
from hillclimb.harness.gemm.results import FailureStatus
from hillclimb.harness.records.record import Record

POLL_SECONDS, END_SECONDS = 0.05, 60.0


class ProcessEnd(Record):
    """How a process ended."""

    exit_code: int
    """Negative: the signal."""
    is_silent: bool = False
    """It was ended, for it had written nothing for too long."""

    def describe(self) -> str:
        """In words: exit status 1, SIGABRT."""
        if self.is_silent:
            return "ended after it had been silent for too long"
        names = {-one: one.name for one in signal.Signals}
        return names.get(self.exit_code, f"exit status {self.exit_code}")


@dataclass(frozen=True)
class Blamed:
    """A kernel that left no row."""

    kernel: str
    status: FailureStatus
    reason: str


@dataclass(frozen=True)
class Settled:
    """What is known of kernels after a process."""

    rows: tuple[ProfilerRow, ...]
    blamed: tuple[Blamed, ...] = ()

    @property
    def kernels(self) -> set[str]:
        return {row.operation for row in self.rows} | {one.kernel for one in self.blamed}


def run(command: Sequence[str], folder: Path, log: Path, grows: Path, silent_seconds: float) -> ProcessEnd:
    """In this folder, to its end, or until neither its log nor the file that `grows` has changed for so long.

    It dies with all that it started, and with its parent: nothing of it is at work beside the next one. Raises
    MachineError where it cannot be ended, as when the driver hangs.
    """
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},  # as nvidia-smi counts
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=dying_with_parent(),  # noqa: PLW1509 - one call of libc; this process has one thread
        )
    sizes, since, is_silent = (-1, -1), time.monotonic(), False
    try:
        while process.poll() is None and not is_silent:
            if (now := (_size(log), _size(grows))) != sizes:
                sizes, since = now, time.monotonic()
            is_silent = time.monotonic() - since > silent_seconds
            time.sleep(POLL_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        exit_code = process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        raise MachineError(
            f"the profiler (pid {process.pid}) does not die; its GPU may hang, see nvidia-smi"
        ) from None
    return ProcessEnd(exit_code=exit_code, is_silent=is_silent and exit_code == -signal.SIGKILL)


def settle(asked: Sequence[str], rows: Sequence[ProfilerRow], log: str, end: ProcessEnd | None) -> Settled:
    """What a process that was asked for these kernels settled; `end` is None where nobody saw it.

    Of failures with no success behind them the first is known to be the kernel's own. The others may have failed for
    that alone, and are to be asked again, also one that ended the process. Where there is none, the kernel that was
    announced last is to blame for the end. A process that announced none says nothing of any.
    """
    rows = [row for row in rows if row.operation in set(asked)]
    kept, is_broken = _own_outcomes(rows)
    known = {row.operation for row in kept}
    left = [kernel for kernel in asked if kernel not in known]
    if end is None or not left:
        return Settled(tuple(kept))
    if end.exit_code == 0:
        seen = {row.operation for row in rows}
        reason = "the profiler passed it over"
        passed_over = (Blamed(kernel, "unsupported", reason) for kernel in left if kernel not in seen)
        return Settled(tuple(kept), tuple(passed_over))
    running = last_announced(log)
    if is_broken or running not in left:
        return Settled(tuple(kept))
    status: FailureStatus = "timed_out" if end.is_silent else "aborted"
    reason = f"the profiler's process: {end.describe()}; its last line: {last_words(log)!r}"
    return Settled(tuple(kept), (Blamed(running, status, reason),))


def _own_outcomes(rows: Sequence[ProfilerRow]) -> tuple[list[ProfilerRow], bool]:
    """Rows that say something of their own kernels, and whether something had broken the process by its end."""
    fine = [at for at, row in enumerate(rows) if not has_failed(row)]
    proven = fine[-1] + 1 if fine else 0
    behind = rows[proven:]
    own = [row for row in behind if row.operation == behind[0].operation]
    return [*rows[:proven], *own], bool(behind)


def has_failed(row: ProfilerRow) -> bool:
    """Whether something went wrong while it ran: neither a time, nor a wrong result, nor a problem it does not take."""
    return not row.was_run and not {"incorrect", *UNSUPPORTED} & {row.status, row.disposition}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
