"""A candidate process as the judge holds it: started in a sandbox, told what to do, named for what it does."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn

from harness.candidate import wire
from harness.candidate.arena import Arena
from harness.candidate.layout import Shapes
from harness.errors import CandidateFault, MachineError
from harness.records import Reason, Side
from harness.sandbox.rungs import Confinement, Exit, Rung

LOG_BYTES = 1 << 20
"""Most a candidate may print."""

SCRATCH_BYTES = 256 << 20
LARGEST_SOURCE = 1 << 20
"""Bytes of a source file that is read; policy refuses larger ones where they may be imported."""

FAULTS = {
    "does_not_load": Reason.DOES_NOT_LOAD,
    "raised": Reason.RAISED,
    "out_of_memory": Reason.OUT_OF_MEMORY,
    "does_not_compile": Reason.DOES_NOT_COMPILE,
}


@dataclass(frozen=True)
class Limits:
    """What one candidate process may use."""

    prepare_seconds: float
    call_seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class Dress:
    """How a kernel is handed its arrays, and what of the machine its process is granted for that."""

    tensors: Literal["numpy", "torch", "cuda", "meta"] = "numpy"
    """NumPy arrays, torch tensors on the host or on the one GPU; meta: shapes alone, for compiling without a GPU."""
    architecture: int = 0
    """What Triton compiles for where tensors are meta."""
    launch: Literal["graph", "eager"] = "eager"
    preload: tuple[str, ...] = ()
    """Trusted modules imported before the workspace."""
    devices: tuple[str, ...] = ()
    """Device nodes."""
    kernels: Path | None = None
    """Folder of what Triton compiled for it earlier; it is given a copy."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Timing:
    """One timed run of some calls."""

    seconds: float
    """By the judge's clock, from the word to go to the answer."""
    whole: float
    """By the judge's clock, from waking the process until its work is proven to be done: the lead-in included."""
    told: float
    """By the candidate's own device events; on a CPU, where there are none, the judge's clock again."""

    def per_call(self, lead: int, count: int) -> Timing:
        """Of one call, when `count` calls were timed after a lead-in of `lead`."""
        return Timing(self.seconds / count, self.whole / (lead + count), self.told / count)


def _nothing() -> None:
    """Where there is nothing to do."""


class CandidateProcess:
    """One side of a duel, alive. Frozen whenever it is not its turn.

    Every method raises CandidateFault with the reason when the process misbehaves, MachineError when the
    sandbox does.
    """

    def __init__(
        self, rung: Rung, side: Side, entry: str, dress: Dress, limits: Limits, *, watched: bool = False
    ) -> None:
        """Start it and begin the import; a `watched` process is for `profile`, and a little slower for it."""
        self._limits, self._dress = limits, dress
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
                    environment={**thread_variables(), **side.knobs, **dress.environment},
                    descriptors=(theirs.fileno(), self._log),
                    devices=dress.devices,
                    readable=(dress.kernels,) if dress.kernels else (),
                ),
            )
        except BaseException:
            self._end.close()
            os.close(self._log)
            raise
        finally:
            theirs.close()
        self.is_closed = False
        self._due: tuple[str, ...] = ()
        self._told: dict[str, Any] = {}
        self.tunes_itself = _mentions(Path(side.tree), "autotune")
        self._arenas: dict[int, Arena] = {}
        self._handed = 0
        self._captured: set[tuple[int, int, int]] = set()
        self._send(
            {
                "op": "load",
                "workspace": str(self._confined.workspace_inside),
                "entry": entry,
                "tensors": dress.tensors,
                "launch": dress.launch,
                "preload": dress.preload,
                "architecture": dress.architecture,
                "kernels": str(dress.kernels) if dress.kernels else "",
                "watched": watched,
            }
        )

    def __enter__(self) -> CandidateProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._confined.pid

    def close(self) -> None:
        """End the process and everything it left behind; again at will."""
        if self.is_closed:
            return
        self.is_closed = True
        self._end.close()
        try:
            self._confined.kill()
        finally:
            os.close(self._log)

    def await_loaded(self) -> None:
        """Wait for the workspace's import, begun at construction; then freeze."""
        self._answer(self._limits.prepare_seconds, "importing")
        self._freeze()

    def begin_compile(self, arena: Arena, slot: int) -> None:
        """Start the first call on an arena, which may compile; `finish_compile` waits for it."""
        self._start("call", arena, first=slot, count=1)

    def finish_compile(self) -> None:
        """Wait for the call begun, for as long as the preparation budget allows; then freeze."""
        self._answer(self._limits.prepare_seconds, "compiling in its first call")
        self._freeze()

    def begin_compile_ahead(self, problems: Mapping[str, Shapes]) -> None:
        """Have it compile for arrays of these shapes once it is loaded, launching nothing; returns at once."""
        try:  # the import may have been answered by now, so nothing is held against what there is to read
            wire.send(self._end, {"op": "compile", "problems": dict(problems)})
        except wire.WireError as error:
            self._name_end(str(error))
        self._due = ("importing", "compiling")

    def has_compiled_ahead(self) -> bool:
        """Take in what it has answered by now, without waiting; whether that is all."""
        while self._due and _is_readable(self._end, 0):
            self._take_due()
        return not self._due

    def finish_compile_ahead(self) -> dict[str, Any]:
        """Wait for that, then freeze; what was compiled, in its own words (harness.candidate.compiling)."""
        while self._due:
            self._take_due()
        self._freeze()
        return self._told

    def _take_due(self) -> None:
        self._told = self._answer(self._limits.prepare_seconds, self._due[0])
        self._due = self._due[1:]

    def is_overdue(self, seconds: float) -> bool:
        """Whether so many seconds are more than importing and compiling may take."""
        return seconds > 2 * self._limits.prepare_seconds

    def scratch(self) -> Path:
        """The candidate's own writable folder, as the judge reaches it; nothing in there is to be trusted."""
        return self._confined.scratch()

    def seal(self) -> None:
        """End the preparation: from here on it has one process, and starts no other.

        A kernel on the CPU is sealed before its workspace is imported.
        """
        if self._dress.tensors != "cuda":
            return
        before = self._confined.filters()
        self._thaw_and_send({"op": "seal"})
        self._answer(self._limits.call_seconds, "being sealed")
        self._freeze()
        if self._confined.filters() <= before:
            raise CandidateFault(Reason.BROKE_PROTOCOL, "answered that it is sealed, which it is not")
        self.expect_alone()

    def expect_alone(self) -> None:
        """Raises CandidateFault where it has company behind its border: a seal can be forged, a process cannot hide."""
        if others := self._confined.others():
            raise CandidateFault(Reason.STARTED_PROCESS, f"{len(others)} processes of its own live beside it")

    def call(self, arena: Arena, first: int, count: int) -> float:
        """Call the kernel once on each of `count` slots; the judge's seconds from waking it to stopping it.

        Together they have the budget of eight: a timed segment is far shorter than that.
        """
        self._map(arena)
        self._expect_frozen()
        start = time.perf_counter()
        self._start("call", arena, first=first, count=count)
        self._answer(self._deadline(count), f"running {count} call{'s' if count != 1 else ''}")
        self._confined.stop()
        seconds = time.perf_counter() - start
        self._freeze()
        return seconds

    def capture(self, arena: Arena, lead: int, count: int) -> None:
        """Have the launches of these calls captured, if that is how they are timed; replays them once."""
        self._map(arena)
        if lead:
            self._capture(arena, lead, count)

    def time(
        self,
        arena: Arena,
        lead: int,
        count: int,
        prove: Callable[[], None] = _nothing,
        between: Callable[[], None] = _nothing,
    ) -> Timing:
        """Time `count` calls on the slots after the first `lead`, on which it runs untimed just before.

        With a lead-in, both sides spin between its end and the word to go, so that waking is not timed. `between` is
        done after the lead-in. Whoever owns a process can say that it is done while its device still works: `prove`
        looks at the outputs, and has to wait for whatever still runs; it is timed as part of the whole.
        """
        if not lead:
            seconds = self.call(arena, 0, count)
            return Timing(seconds, seconds, seconds)
        self._map(arena)
        self._capture(arena, lead, count)
        self._expect_frozen()
        woken = time.perf_counter()
        self._start("lead", arena, first=0, count=lead)
        self._answer(self._deadline(lead), "leading in", self._spin)
        between()
        start = time.perf_counter()
        self._send({"op": "go", "first": lead, "count": count})
        answer = self._answer(self._deadline(count), f"running {count} timed calls", self._spin)
        end = time.perf_counter()
        self._confined.stop()
        prove()
        proven = time.perf_counter()
        self._freeze()
        return Timing(end - start, proven - woken, _told_seconds(answer))

    def profile(self, arena: Arena, first: int, count: int) -> object:
        """As `call`, under a profiler in a watched process: what the candidate answers for rows, whatever that is."""
        self._map(arena)
        self._expect_frozen()
        self._start("profile", arena, first=first, count=count)
        told = self._answer(self._deadline(count), "running under the profiler").get("rows")
        self._freeze()
        return told

    def forget(self, arena: Arena) -> None:
        """Have it unmap an arena, so that the memory is free once the judge gives it back too."""
        number = self._number(arena)
        if number is None:
            return
        del self._arenas[number]
        self._captured = {key for key in self._captured if key[0] != number}
        self._thaw_and_send({"op": "unmap", "arena": number})
        self._answer(self._limits.call_seconds, "unmapping buffers")
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

    def _start(self, op: Literal["call", "lead", "profile"], arena: Arena, *, first: int, count: int) -> None:
        self._map(arena)
        self._thaw_and_send({"op": op, "arena": self._number(arena), "first": first, "count": count})

    def _thaw_and_send(self, message: dict[str, Any]) -> None:
        self._confined.thaw()
        self._send(message)

    def _deadline(self, count: int) -> float:
        return self._limits.call_seconds * min(count, 8)

    def _number(self, arena: Arena) -> int | None:
        return next((number for number, known in self._arenas.items() if known is arena), None)

    def _map(self, arena: Arena) -> None:
        """Hand an arena over, the first time it is used."""
        if self._number(arena) is not None:
            return
        self._handed += 1
        self._arenas[self._handed] = arena
        self._confined.thaw()
        self._send({"op": "map", "arena": self._handed, "layout": arena.layout.to_json()}, arena.descriptor)
        self._answer(self._limits.prepare_seconds, "mapping buffers")
        self._freeze()

    def _capture(self, arena: Arena, lead: int, count: int) -> None:
        """Have the launches of these calls captured, the first time they are timed."""
        number = self._number(arena)
        assert number is not None
        if self._dress.launch != "graph" or (number, lead, count) in self._captured:
            return
        self._captured.add((number, lead, count))
        for first, calls in ((0, lead), (lead, count)):
            self._thaw_and_send({"op": "capture", "arena": number, "first": first, "count": calls})
            self._answer(self._limits.prepare_seconds, "capturing its launches in a CUDA graph")
            self._freeze()

    def _freeze(self) -> None:
        """Stop it for good until it is woken, and see what it holds."""
        try:
            self._confined.freeze()
        except MachineError as error:
            raise CandidateFault(Reason.HUNG, f"it cannot be stopped: {error}") from error
        lent = sum(arena.layout.nbytes for arena in self._arenas.values())
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

    def _spin(self, seconds: float) -> bool:
        """Look for an answer without ever sleeping: a timed one must not wait for this process to wake."""
        deadline = time.perf_counter() + seconds
        while not _is_readable(self._end, 0):
            if time.perf_counter() > deadline:
                return False
        return True

    def _sleep(self, seconds: float) -> bool:
        return _is_readable(self._end, seconds)

    def _answer(
        self, seconds: float, doing: str, await_answer: Callable[[float], bool] | None = None
    ) -> dict[str, Any]:
        """Wait for the one answer that is due."""
        if not (await_answer or self._sleep)(seconds):
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


def _mentions(tree: Path, word: str) -> bool:
    """Whether any Python file of a workspace has the word in it."""
    files = (path for path in tree.rglob("*.py") if path.is_file() and path.stat().st_size <= LARGEST_SOURCE)
    return any(word in path.read_text(errors="replace") for path in files)


def _make_log() -> int:
    """A descriptor for stdout and stderr that holds LOG_BYTES and not one more."""
    log = os.memfd_create("hillclimb-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(log, LOG_BYTES)
    fcntl.fcntl(log, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return log


def thread_variables() -> dict[str, str]:
    """As many threads as this process may use CPUs, for libraries that start them."""
    threads = str(len(os.sched_getaffinity(0)))
    return {"NUMBA_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}


def _told_seconds(answer: dict[str, Any]) -> float:
    """What it says its device took. Raises CandidateFault where that is no time."""
    nanoseconds = answer.get("ns")
    if (
        isinstance(nanoseconds, bool)
        or not isinstance(nanoseconds, int | float)
        or not 0 < nanoseconds < 1e15
    ):
        raise CandidateFault(Reason.BROKE_PROTOCOL, f"told {str(nanoseconds)[:60]} as its own time")
    return nanoseconds / 1e9


def _is_readable(end: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(end, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(seconds * 1000))
