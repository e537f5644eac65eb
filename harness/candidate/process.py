"""A candidate process as the judge holds it: started in a sandbox, told what to do, named for what it does."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn

from harness.candidate import wire
from harness.candidate.arena import Arena
from harness.errors import CandidateFault, MachineError
from harness.records import Reason, Side
from harness.sandbox.rungs import Confinement, Exit, Rung

LOG_BYTES = 1 << 20
"""Most a candidate may print."""

SCRATCH_BYTES = 256 << 20
FAULTS = {
    "does_not_load": Reason.DOES_NOT_LOAD,
    "raised": Reason.RAISED,
    "out_of_memory": Reason.OUT_OF_MEMORY,
}


@dataclass(frozen=True)
class Limits:
    """What one candidate process may use."""

    prepare_seconds: float
    call_seconds: float
    memory_bytes: int


class CandidateProcess:
    """One side of a duel, alive. Frozen whenever it is not its turn.

    Every method raises CandidateFault with the reason when the process misbehaves, MachineError when the
    sandbox does.
    """

    def __init__(
        self,
        rung: Rung,
        side: Side,
        entry: str,
        preload: list[str],
        limits: Limits,
        *,
        watched: bool = False,
    ) -> None:
        """Start it and begin the import; a `watched` process is for `profile`, and a little slower for it."""
        self._limits = limits
        self._log = _make_log()
        self._end, theirs = wire.make_pair()
        self._end.settimeout(limits.call_seconds)
        try:
            self._confined = rung.spawn(
                [sys.executable, "-m", "harness.candidate.runner", str(theirs.fileno()), str(self._log)],
                Confinement(
                    workspace=Path(side.tree),
                    memory_bytes=limits.memory_bytes,
                    scratch_bytes=SCRATCH_BYTES,
                    environment=_environment(side),
                    descriptors=(theirs.fileno(), self._log),
                ),
            )
        except BaseException:
            self._end.close()
            os.close(self._log)
            raise
        finally:
            theirs.close()
        self._arenas: list[Arena] = []
        inside = str(self._confined.workspace_inside)
        self._send(
            {"op": "load", "workspace": inside, "entry": entry, "preload": preload, "watched": watched}
        )

    def __enter__(self) -> CandidateProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and everything it left behind."""
        self._end.close()
        self._confined.kill()
        os.close(self._log)

    def await_loaded(self) -> None:
        """Wait for the workspace's import, begun at construction; then freeze."""
        self._answer(self._limits.prepare_seconds, "importing")
        self._freeze()

    def run(self, arena: Arena, first: int, count: int) -> float:
        """Call the kernel once on each of `count` slots; the judge's seconds from waking it to stopping it.

        Together the calls have the budget of three: a timed segment is far shorter than that.
        """
        self._map(arena)
        self._expect_frozen()
        start = time.perf_counter()
        self._start("run", arena, first, count)
        self._answer(self._deadline(count), f"running {count} call{'s' if count != 1 else ''}")
        self._confined.stop()
        seconds = time.perf_counter() - start
        self._freeze()
        return seconds

    def profile(self, arena: Arena, first: int, count: int) -> object:
        """As `run`, under a profiler in a watched process: what the candidate answers for rows, whatever that is."""
        self._map(arena)
        self._expect_frozen()
        self._start("profile", arena, first, count)
        told = self._answer(self._deadline(count), "running under the profiler").get("rows")
        self._freeze()
        return told

    def begin_compile(self, arena: Arena, slot: int) -> None:
        """Start the first call on an arena, which may compile; `finish_compile` waits for it."""
        self._map(arena)
        self._start("run", arena, slot, 1)

    def finish_compile(self) -> None:
        """Wait for the call begun, for as long as the preparation budget allows; then freeze."""
        self._answer(self._limits.prepare_seconds, "compiling in its first call")
        self._freeze()

    def resident_bytes(self) -> int:
        return self._confined.resident_bytes()

    def cpu_seconds(self) -> float:
        return self._confined.cpu_seconds()

    def printed(self) -> str:
        """The end of what it wrote to stdout and stderr."""
        size = os.lseek(self._log, 0, os.SEEK_CUR)
        start = max(0, size - 2000)
        return os.pread(self._log, size - start, start).decode(errors="replace")

    def _start(self, op: Literal["run", "profile"], arena: Arena, first: int, count: int) -> None:
        self._confined.thaw()
        self._send({"op": op, "arena": self._arenas.index(arena), "first": first, "count": count})

    def _deadline(self, count: int) -> float:
        return self._limits.call_seconds * min(count, 3)

    def _map(self, arena: Arena) -> None:
        """Hand an arena over, the first time it is used."""
        if arena in self._arenas:
            return
        self._arenas.append(arena)
        self._confined.thaw()
        number = len(self._arenas) - 1
        self._send({"op": "map", "arena": number, "layout": arena.layout.to_json()}, arena.descriptor)
        self._answer(self._limits.call_seconds, "mapping buffers")
        self._freeze()

    def _freeze(self) -> None:
        """Stop it for good until it is woken, and see what it holds."""
        try:
            self._confined.freeze()
        except MachineError as error:
            raise CandidateFault(Reason.HUNG, f"it cannot be stopped: {error}") from error
        lent = sum(arena.layout.nbytes for arena in self._arenas)
        if self._confined.resident_bytes() > self._limits.memory_bytes + lent:
            most = self._limits.memory_bytes >> 20
            raise CandidateFault(Reason.OUT_OF_MEMORY, f"holds more than {most} MiB besides its buffers")

    def _expect_frozen(self) -> None:
        """Raises CandidateFault where it ran when it was not its turn."""
        if self._confined.poll() is None and self._confined.ran_while_frozen():
            raise CandidateFault(Reason.BROKE_PROTOCOL, "ran while it was frozen")

    def _send(self, message: dict[str, Any], *descriptors: int) -> None:
        """Ask something; nothing may have been said since the last answer."""
        try:
            if _is_readable(self._end, 0):
                said, _ = wire.receive(self._end)
                raise CandidateFault(Reason.BROKE_PROTOCOL, f"said {str(said)[:200]} without being asked")
            wire.send(self._end, message, descriptors)
        except wire.WireError as error:
            self._name_end(str(error))

    def _answer(self, seconds: float, doing: str) -> dict[str, Any]:
        """Wait for the one answer that is due."""
        if not _is_readable(self._end, seconds):
            raise CandidateFault(Reason.HUNG, f"no answer after {seconds:g} s of {doing}{self._quote()}")
        try:
            message, _ = wire.receive(self._end)
        except wire.WireError as error:
            self._name_end(str(error))
        if self._has_flooded():
            raise CandidateFault(
                Reason.FLOODED_OUTPUT, f"printed more than {LOG_BYTES >> 20} MiB while {doing}"
            )
        if message.get("ok") is True:
            return message
        fault, text = message.get("fault"), message.get("text")
        if not isinstance(fault, str) or fault not in FAULTS or not isinstance(text, str):
            raise CandidateFault(Reason.BROKE_PROTOCOL, f"answered {str(message)[:200]} while {doing}")
        raise CandidateFault(FAULTS[fault], text.strip())

    def _name_end(self, said: str) -> NoReturn:
        """The socket failed: find out how the process ended and call it by its name."""
        self._confined.thaw()
        end = self._confined.wait(2.0)
        if self._has_flooded():
            raise CandidateFault(Reason.FLOODED_OUTPUT, f"printed more than {LOG_BYTES >> 20} MiB")
        if end is None:
            raise CandidateFault(Reason.BROKE_PROTOCOL, f"{said}, yet the process lives on")
        reason, detail = name_exit(end)
        raise CandidateFault(reason, detail + self._quote())

    def _has_flooded(self) -> bool:
        return os.lseek(self._log, 0, os.SEEK_CUR) >= LOG_BYTES

    def _quote(self) -> str:
        printed = self.printed().strip()
        return f"; it printed: {printed[-500:]}" if printed else ""


def name_exit(end: Exit) -> tuple[Reason, str]:
    """What the way a process ended says about it."""
    if end.signal is None:
        return Reason.EXITED, f"left with status {end.code} before it was asked to"
    if end.signal == signal.SIGSYS:
        return Reason.STARTED_PROCESS, "tried to start a process or replace itself (killed by seccomp)"
    if end.signal == signal.SIGXFSZ:
        return Reason.WROTE_TOO_MUCH, "wrote a file larger than its scratch space"
    if end.signal == signal.SIGKILL:
        return Reason.OUT_OF_MEMORY, "killed by SIGKILL, as the kernel does when memory runs out"
    return Reason.CRASHED, f"died of {end}"


def _make_log() -> int:
    """A descriptor for stdout and stderr that holds LOG_BYTES and not one more."""
    log = os.memfd_create("hillclimb-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(log, LOG_BYTES)
    fcntl.fcntl(log, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return log


def _environment(side: Side) -> dict[str, str]:
    threads = str(len(os.sched_getaffinity(0)))
    return {"NUMBA_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, **side.knobs}


def _is_readable(end: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(end, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(seconds * 1000))
