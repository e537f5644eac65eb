"""A candidate process as the judge holds it: started in a sandbox, told what to do, named for what it does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from harness.candidate import wire
from harness.candidate.arena import Arena
from harness.candidate.conversation import SCRATCH_BYTES, Conversation, Log
from harness.candidate.layout import Signature
from harness.errors import CandidateFault, MachineError, SandboxError
from harness.records import Reason, Side
from harness.sandbox.rungs import Confinement, Rung

LARGEST_SOURCE = 1 << 20
"""Bytes of a source file that is read; policy refuses larger ones where they may be imported."""


LATE_SECONDS, LATE_SHARE, MOST_LATE = 0.005, 0.25, 3
"""CPU time after the word to stop, in seconds and as a share of the call's: above both it is noted, and so often is
too often. Of 1243 calls of honest kernels on a busy machine the longest ran on for 0.24 ms; threads that spin, on a
machine with three times as much to do as it has CPUs, for 4.7 ms."""

UNSEALED = ("cuda", "meta")
"""Tensors whose kernels need a compiler, which is a process; others are sealed before their workspace is imported."""

MOST_HELPERS = 64
"""Living processes beside one that is not sealed yet. Triton has five at a time: ptxas, or a C compiler's."""


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
class Turn:
    """What one side runs when it is timed, a slot a call, from the first slot on."""

    count: int
    """Timed calls, the last ones."""
    lead: int = 0
    """Calls before the word to go, since the first milliseconds after a switch between processes are slower."""
    fed: int = 0
    """Calls from that word on that keep the device busy until the timed ones have been launched."""

    @property
    def slots(self) -> range:
        return range(self.lead + self.fed + self.count)

    @property
    def timed(self) -> range:
        return self.slots[self.lead + self.fed :]

    def runs(self) -> list[tuple[int, int]]:
        """(first slot, calls) of what is launched together."""
        firsts = (0, self.lead, self.timed.start)
        return [(f, n) for f, n in zip(firsts, (self.lead, self.fed, self.count), strict=True) if n]


@dataclass(frozen=True)
class Timing:
    """One timed turn."""

    seconds: float
    """By the judge's clock, from the word to go to the answer: the calls fed and those timed."""
    whole: float
    """By the judge's clock, from waking the process until its work is proven to be done: all calls."""
    told: float
    """By the candidate's own device events, the timed calls; on a CPU, which has none, by the judge's clock."""

    def per_call(self, turn: Turn) -> Timing:
        """Of one call."""
        ran, every = turn.fed + turn.count, len(turn.slots)
        return Timing(self.seconds / ran, self.whole / every, self.told / turn.count)


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
        self.tunes_itself = _mentions(Path(side.tree), "autotune")
        self._log = Log()
        ours, theirs = wire.make_pair()
        ours.settimeout(limits.call_seconds)
        try:
            self._confined = rung.spawn(
                [
                    sys.executable,
                    "-m",
                    "harness.candidate.runner",
                    str(theirs.fileno()),
                    str(self._log.descriptor),
                ],
                Confinement(
                    workspace=Path(side.tree),
                    memory_bytes=limits.memory_bytes,
                    scratch_bytes=SCRATCH_BYTES,
                    environment={**thread_variables(), **side.knobs, **dress.environment},
                    descriptors=(theirs.fileno(), self._log.descriptor),
                    devices=dress.devices,
                    readable=(dress.kernels,) if dress.kernels else (),
                ),
            )
        except BaseException:
            ours.close()
            self._log.close()
            raise
        finally:
            theirs.close()
        self._talk = Conversation(ours, self._confined, self._log, self.expect_bounds)
        self.is_closed = False
        self._is_sealed = dress.tensors not in UNSEALED
        self._due: tuple[str, ...] = ()
        self._told: dict[str, Any] = {}
        self._arenas: dict[int, Arena] = {}
        self._handed = 0
        self._late = 0
        self._captured: set[tuple[int, Turn]] = set()
        self._is_capturing = False
        try:
            self._talk.ask(
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
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> CandidateProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._confined.pid

    def end(self) -> None:
        """Begin to end the process, which `close` waits for; of several, end all before closing the first."""
        if not self.is_closed:
            self._confined.end()

    def close(self) -> None:
        """End the process and everything it left behind; again at will."""
        if self.is_closed:
            return
        self.is_closed = True
        self._talk.close()
        try:
            self._confined.kill()
        finally:
            self._log.close()

    def await_loaded(self) -> None:
        """Wait for the workspace's import, begun at construction; then freeze."""
        self._talk.answer(self._limits.prepare_seconds, "importing")
        self._freeze()

    def begin_compile(self, arena: Arena, slot: int) -> None:
        """Start the first call on an arena, which may compile; `finish_compile` waits for it."""
        self._start("call", arena, first=slot, count=1)

    def finish_compile(self) -> None:
        """Wait for the call begun, for as long as the preparation budget allows; then freeze."""
        self._talk.answer(self._limits.prepare_seconds, "compiling in its first call")
        self._freeze()

    def begin_compile_ahead(self, problems: Mapping[str, Signature]) -> None:
        """Have it compile calls of these signatures once it is loaded, launching nothing; returns at once."""
        told = {name: asdict(signature) for name, signature in problems.items()}
        self._talk.ask_ahead({"op": "compile", "problems": told})
        self._due = ("importing", "compiling")

    def has_compiled_ahead(self) -> bool:
        """Take in what it has answered by now, without waiting; whether that is all."""
        while self._due and self._talk.has_answer():
            self._take_due()
        return not self._due

    def finish_compile_ahead(self) -> dict[str, Any]:
        """Wait for that, then freeze; what was compiled, in its own words (harness.candidate.compiling)."""
        while self._due:
            self._take_due()
        self._freeze()
        return self._told

    def _take_due(self) -> None:
        self._told = self._talk.answer(self._limits.prepare_seconds, self._due[0])
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
        if not self._confined.seal():
            self._seal_inside()
        self._is_sealed = True
        self.expect_alone()

    def _seal_inside(self) -> None:
        """Where the border cannot: by the process itself, whose word is not enough."""
        before = self._confined.filters()
        self._thaw_and_send({"op": "seal"})
        self._talk.answer(self._limits.call_seconds, "being sealed")
        self._freeze()
        if self._confined.filters() <= before:
            raise CandidateFault(Reason.BROKE_PROTOCOL, "answered that it is sealed, which it is not")

    def expect_alone(self) -> None:
        """Raises CandidateFault where it has company behind its border, started before the seal or in spite of it."""
        if others := self._confined.others():
            raise CandidateFault(Reason.STARTED_PROCESS, f"{len(others)} processes of its own live beside it")

    def call(self, arena: Arena, first: int, count: int) -> float:
        """Call the kernel once on each of `count` slots; the judge's seconds from waking it to stopping it.

        Together they have the budget of eight: a timed segment is far shorter than that. A thread inside the kernel
        stops only when its system call is over, so the CPU time it had after the word to stop is added.
        """
        self._map(arena)
        self._expect_frozen()
        start = time.perf_counter()
        self._start("call", arena, first=first, count=count)
        self._talk.answer(self._deadline(count), f"running {count} call{'s' if count != 1 else ''}")
        self._confined.stop()
        seconds, told = time.perf_counter() - start, self._confined.run_seconds()
        self._freeze()
        late = self._confined.run_seconds() - told
        self._late += late > max(LATE_SECONDS, LATE_SHARE * seconds)
        if self._late >= MOST_LATE:
            detail = (
                f"ran on for {late * 1e3:.1f} ms of CPU time after it was stopped, {MOST_LATE} times by now"
            )
            raise CandidateFault(Reason.LEFT_WORK_RUNNING, detail)
        return seconds + late

    def capture(self, arena: Arena, turn: Turn) -> None:
        """Have the launches of these calls captured, if that is how they are timed; replays them once."""
        self.begin_capture(arena, turn)
        self.finish_capture()

    def begin_capture(self, arena: Arena, turn: Turn) -> None:
        """As `capture`, which `finish_capture` waits for; nothing is begun the second time they are timed."""
        self._map(arena)
        number = self._number(arena)
        assert number is not None
        if not turn.lead or self._dress.launch != "graph" or (number, turn) in self._captured:
            return
        self._captured.add((number, turn))
        self._is_capturing = True
        self._thaw_and_send({"op": "capture", "arena": number, "runs": turn.runs()})

    def finish_capture(self) -> None:
        """Wait for what was begun, then freeze."""
        if self._is_capturing:
            self._is_capturing = False
            self._talk.answer(self._limits.prepare_seconds, "capturing its launches in a CUDA graph")
            self._freeze()

    def time(
        self,
        arena: Arena,
        turn: Turn,
        prove: Callable[[], None] = _nothing,
        between: Callable[[], None] = _nothing,
    ) -> Timing:
        """Time one turn.

        With a lead-in, both sides spin between its end and the word to go, so that waking is not timed; `between` is
        done there. Whoever owns a process can say that it is done while its device still works: `prove` looks at the
        outputs, and has to wait for whatever still runs; it is timed as part of the whole.
        """
        if not turn.lead:
            seconds = self.call(arena, 0, turn.count)
            return Timing(seconds, seconds, seconds)
        self.capture(arena, turn)
        self._expect_frozen()
        woken = time.perf_counter()
        self._start("lead", arena, first=0, count=turn.lead)
        self._talk.answer(self._deadline(turn.lead), "leading in", spinning=True)
        between()
        start = time.perf_counter()
        self._talk.ask({"op": "go", "first": turn.timed.start, "count": turn.count, "fed": turn.fed})
        ran = turn.fed + turn.count
        answer = self._talk.answer(self._deadline(ran), f"running {turn.count} timed calls", spinning=True)
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
        told = self._talk.answer(self._deadline(count), "running under the profiler").get("rows")
        self._freeze()
        return told

    def lanes(self, arena: Arena, slot: int) -> object:
        """One call where kernels are interpreted, its lanes and trips counted: what the candidate answers for them."""
        self._map(arena)
        self._expect_frozen()
        self._start("lanes", arena, first=slot, count=1)
        told = self._talk.answer(self._limits.prepare_seconds, "having its lanes counted").get("lanes")
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
        self._talk.answer(self._limits.call_seconds, "unmapping buffers")
        self._freeze()

    def resident_bytes(self) -> int:
        return self._confined.resident_bytes()

    def cpu_seconds(self) -> float:
        return self._confined.cpu_seconds()

    def _start(
        self, op: Literal["call", "lead", "profile", "lanes"], arena: Arena, *, first: int, count: int
    ) -> None:
        self._map(arena)
        self._thaw_and_send({"op": op, "arena": self._number(arena), "first": first, "count": count})

    def _thaw_and_send(self, message: dict[str, Any]) -> None:
        self._confined.thaw()
        self._talk.ask(message)

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
        self._talk.ask(
            {"op": "map", "arena": self._handed, "layout": arena.layout.to_json()}, arena.descriptor
        )
        self._talk.answer(self._limits.prepare_seconds, "mapping buffers")
        self._freeze()

    def _freeze(self) -> None:
        """Stop it for good until it is woken, and see what it holds."""
        try:
            self._confined.freeze()
        except SandboxError:
            raise
        except MachineError as error:
            raise CandidateFault(Reason.HUNG, f"it cannot be stopped: {error}") from error
        self.expect_bounds()

    def expect_bounds(self) -> None:
        """Raises CandidateFault where it holds more than it may, or more processes help it to prepare."""
        if not self._is_sealed and (crowd := self._confined.crowd()) > MOST_HELPERS:
            detail = (
                f"{crowd} processes of its own live beside it while it prepares; compilers need no more than"
            )
            raise CandidateFault(Reason.STARTED_PROCESS, f"{detail} {MOST_HELPERS}")
        lent = sum(arena.layout.nbytes for arena in self._arenas.values())
        if self._confined.resident_bytes() > self._limits.memory_bytes + lent:
            most = self._limits.memory_bytes >> 20
            raise CandidateFault(Reason.OUT_OF_MEMORY, f"holds more than {most} MiB besides its buffers")

    def _expect_frozen(self) -> None:
        """Raises CandidateFault where it ran when it was not its turn."""
        if self._confined.poll() is None and self._confined.ran_while_frozen():
            raise CandidateFault(Reason.BROKE_PROTOCOL, "ran while it was frozen")


def _mentions(tree: Path, word: str) -> bool:
    """Whether any Python file of a workspace has the word in it."""
    files = (path for path in tree.rglob("*.py") if path.is_file() and path.stat().st_size <= LARGEST_SOURCE)
    return any(word in path.read_text(errors="replace") for path in files)


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
