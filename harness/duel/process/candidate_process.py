"""A candidate process as the judge holds it: started in a sandbox, told what to do, named for what it does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from hillclimb.harness.case.workspace_names import UNREAD_FOLDERS
from hillclimb.harness.channel import wire
from hillclimb.harness.channel.layout import CallSignature, Shapes
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.process.conversation import (
    SCRATCH_BYTES,
    Conversation,
    OutputLog,
    reported_seconds,
)
from hillclimb.harness.duel.process.launch_spec import (
    LaunchSpec,
    ProcessLimits,
    SegmentPlan,
    Timing,
    do_nothing,
    mentions,
)
from hillclimb.harness.duel.process.parameters import LentParameters, Parameters
from hillclimb.harness.duel.process.running_on import RunningOn
from hillclimb.harness.errors import CandidateFault, MachineError, SandboxError
from hillclimb.harness.records import Reason, Side
from hillclimb.harness.sandbox.kernel.seccomp import stage_two_program
from hillclimb.harness.sandbox.rungs.choose import Confinement, Rung

RUNNER = "hillclimb.harness.candidate.runner"

COMPILED_TENSORS = ("cuda", "meta")
"""Tensors whose kernels need a compiler, which is a process; others are sealed before their workspace is imported."""

MAX_HELPERS = 64
"""Living processes beside one that is not sealed yet. Triton has five at a time: ptxas, or a C compiler's."""


class CandidateProcess:
    """One side of a duel, alive. Frozen whenever it is not its turn.

    Every method raises CandidateFault with the reason when the process misbehaves, MachineError when the sandbox does.
    """

    def __init__(
        self,
        rung: Rung,
        side: Side,
        entry: str,
        spec: LaunchSpec,
        limits: ProcessLimits,
        *,
        parameters: Parameters | None = None,
        watched: bool = False,
    ) -> None:
        """Start it and begin the import; a `watched` process is for `profile`, and a little slower for it."""
        self._limits, self._spec, self.parameters = limits, spec, parameters
        self.loan: LentParameters | None = None
        self.has_autotuner = mentions(Path(side.tree), "autotune")
        self.is_closed = self._is_capturing = False
        self._is_sealed = spec.tensors not in COMPILED_TENSORS
        self._due: tuple[str, ...] = ()
        self._told: dict[str, Any] = {}
        self._arenas: dict[int, Arena] = {}
        self._handed = 0
        self._running_on = RunningOn()
        self._captured: set[tuple[int, SegmentPlan]] = set()
        self._spawn(rung, side)
        with ExitStack() as unless_asked:
            unless_asked.callback(self.close)
            self._ask_to_load(entry, watched=watched)
            unless_asked.pop_all()

    def _spawn(self, rung: Rung, side: Side) -> None:
        """Start the runner in a sandbox, and the conversation with it."""
        spec, limits = self._spec, self._limits
        with ExitStack() as unless_spawned:
            self._log = OutputLog()
            unless_spawned.callback(self._log.close)
            ours, theirs = wire.make_pair()
            unless_spawned.callback(ours.close)
            ours.settimeout(limits.call_seconds)
            with theirs:
                runner = [sys.executable, "-m", RUNNER, str(theirs.fileno()), str(self._log.descriptor)]
                confinement = Confinement(
                    workspace=Path(side.tree),
                    memory_bytes=limits.memory_bytes,
                    scratch_bytes=SCRATCH_BYTES,
                    environment=spec.variables(side.knobs),
                    descriptors=(theirs.fileno(), self._log.descriptor),
                    hidden=UNREAD_FOLDERS,
                    devices=spec.devices,
                    readable=(spec.kernel_folder,) if spec.kernel_folder else (),
                )
                self._confined = rung.spawn(runner, confinement)
            unless_spawned.pop_all()
        self._conversation = Conversation(
            ours, self._confined, self._log, self.require_bounds, spec.is_walled
        )

    def _ask_to_load(self, entry: str, *, watched: bool) -> None:
        self._conversation.ask(
            {
                "op": "load",
                "workspace": str(self._confined.workspace_inside),
                "entry": entry,
                **self._spec.load_fields(),
                "watched": watched,
                "process_filter": stage_two_program().hex(),
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

    def end(self) -> None:
        """Begin to end the process, which `close` waits for; of several, end all before closing the first."""
        if not self.is_closed:
            self._confined.send_sigkill()

    def close(self) -> None:
        """End the process and everything it left behind; again at will."""
        if self.is_closed:
            return
        self.is_closed = True
        self._conversation.close()
        try:
            self._confined.kill()
        finally:
            self._log.close()
            if self.loan is not None:
                self.loan.give_back()

    def await_loaded(self) -> None:
        """Wait for the workspace's import, begun at construction; then freeze."""
        self._conversation.answer(self._limits.prepare_seconds, "importing")
        self._freeze()

    def take_parameters(self) -> None:
        """Have it make its kernel of the parameters, where there are some; then freeze."""
        if self.parameters is not None:
            self.loan = self.parameters.lend()
            self._thaw_and_send(*self.loan.offer())
            self._conversation.answer(self._limits.prepare_seconds, "taking up its parameters")
            self._freeze()

    def begin_compile(self, arena: Arena, slot: int) -> None:
        """Start the first call on an arena, which may compile; `finish_compile` waits for it."""
        self._start("call", arena, first=slot, count=1)

    def finish_compile(self) -> None:
        """Wait for the call begun, for as long as the preparation budget allows; then freeze."""
        self._conversation.answer(self._limits.prepare_seconds, "compiling in its first call")
        self._freeze()

    def begin_precompile(self, problems: Mapping[str, CallSignature], parameters: Shapes = ()) -> None:
        """Have it compile calls of these signatures once it is loaded, launching nothing; returns at once."""
        told = {name: asdict(signature) for name, signature in problems.items()}
        self._conversation.ask_ahead({"op": "compile", "problems": told, "parameters": parameters})
        self._due = ("importing", "compiling")

    def has_precompiled(self) -> bool:
        """Take in what it has answered by now, without waiting; whether that is all."""
        while self._due and self._conversation.has_answer():
            self._take_due()
        return not self._due

    def finish_precompile(self) -> dict[str, Any]:
        """Wait for that, then freeze; what was compiled, in its own words (harness.candidate.offline_compiler)."""
        while self._due:
            self._take_due()
        self._freeze()
        return self._told

    def _take_due(self) -> None:
        self._told = self._conversation.answer(self._limits.prepare_seconds, self._due[0])
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
        if self._spec.tensors != "cuda":
            return
        if not self._confined.seal():
            self._seal_inside()
        self._is_sealed = True
        self.require_alone()

    def _seal_inside(self) -> None:
        """Where the border cannot: by the process itself, whose word is not enough."""
        before = self._confined.seccomp_filter_count()
        self._thaw_and_send({"op": "seal", "process_filter": stage_two_program().hex()})
        self._conversation.answer(self._limits.call_seconds, "being sealed")
        self._freeze()
        if self._confined.seccomp_filter_count() <= before:
            raise CandidateFault(Reason.BROKE_PROTOCOL, "answered that it is sealed, which it is not")

    def require_alone(self) -> None:
        """Raises CandidateFault where it has company behind its border, started before the seal or in spite of it."""
        if others := self._confined.other_pids():
            raise CandidateFault(Reason.STARTED_PROCESS, f"{len(others)} processes of its own live beside it")

    def call(self, arena: Arena, first: int, count: int) -> float:
        """Call the kernel once on each of `count` slots; the judge's seconds from waking it to stopping it.

        Together they have the budget of eight: a timed segment is far shorter than that. A thread inside the kernel
        stops only when its system call is over, so what it ran after the word to stop is added.
        """
        self._map(arena)
        self._require_frozen()
        start = time.perf_counter()
        self._start("call", arena, first=first, count=count)
        self._conversation.answer(self._deadline(count), f"running {count} call{'s' if count != 1 else ''}")
        self._confined.stop()
        told, seconds = self._confined.run_seconds(), time.perf_counter() - start
        self._freeze()
        waited = time.perf_counter() - start - seconds
        return seconds + self._running_on.charge(seconds, self._confined.run_seconds() - told, waited)

    def capture(self, arena: Arena, plan: SegmentPlan) -> None:
        """Have the launches of these calls captured, if that is how they are timed; replays them once."""
        self.begin_capture(arena, plan)
        self.finish_capture()

    def begin_capture(self, arena: Arena, plan: SegmentPlan) -> None:
        """As `capture`, which `finish_capture` waits for; nothing is begun the second time they are timed."""
        self._map(arena)
        number = self._number(arena)
        assert number is not None
        if not plan.lead_in_calls or self._spec.launch != "graph" or (number, plan) in self._captured:
            return
        self._captured.add((number, plan))
        self._is_capturing = True
        self._thaw_and_send({"op": "capture", "arena": number, "runs": plan.runs()})

    def finish_capture(self) -> None:
        """Wait for what was begun, then freeze."""
        if self._is_capturing:
            self._is_capturing = False
            self._conversation.answer(self._limits.prepare_seconds, "capturing its launches in a CUDA graph")
            self._freeze()

    def time(
        self,
        arena: Arena,
        plan: SegmentPlan,
        read_outputs: Callable[[], None] = do_nothing,
        before_start: Callable[[], None] = do_nothing,
    ) -> Timing:
        """Time one turn.

        With a lead-in, both sides spin between its end and the word to go, so that waking is not timed; `before_start`
        is called there. Whoever owns a process can say that it is done while its device still works: `read_outputs`
        looks at the outputs, and has to wait for whatever still runs; it is timed as part of the whole.
        """
        if not plan.lead_in_calls:
            seconds = self.call(arena, 0, plan.timed_calls)
            return Timing(seconds, seconds, seconds)
        self.capture(arena, plan)
        self._require_frozen()
        woken = time.perf_counter()
        self._start("lead", arena, first=0, count=plan.lead_in_calls)
        self._conversation.answer(self._deadline(plan.lead_in_calls), "leading in", spinning=True)
        before_start()
        start = time.perf_counter()
        self._conversation.ask(
            {"op": "go", "first": plan.timed.start, "count": plan.timed_calls, "fed": plan.backlog_calls}
        )
        ran = plan.backlog_calls + plan.timed_calls
        answer = self._conversation.answer(
            self._deadline(ran), f"running {plan.timed_calls} timed calls", spinning=True
        )
        end = time.perf_counter()
        self._confined.stop()
        read_outputs()
        proven = time.perf_counter()
        self._freeze()
        return Timing(end - start, proven - woken, reported_seconds(answer))

    def profile(self, arena: Arena, first: int, count: int) -> object:
        """As `call`, under a profiler in a watched process: what the candidate answers for rows, whatever that is."""
        self._start_frozen("profile", arena, first, count)
        told = self._conversation.answer(self._deadline(count), "running under the profiler")
        self._freeze()
        return told.get("rows")

    def count_lanes(self, arena: Arena, slot: int) -> object:
        """One call where kernels are interpreted, its lanes and trips counted: what the candidate answers for them."""
        self._start_frozen("lanes", arena, slot, 1)
        told = self._conversation.answer(self._limits.prepare_seconds, "having its lanes counted")
        self._freeze()
        return told.get("lanes")

    def _start_frozen(self, op: Literal["profile", "lanes"], arena: Arena, first: int, count: int) -> None:
        self._map(arena)
        self._require_frozen()
        self._start(op, arena, first=first, count=count)

    def unmap(self, arena: Arena) -> None:
        """Have it unmap an arena, so that the memory is free once the judge gives it back too."""
        number = self._number(arena)
        if number is None:
            return
        del self._arenas[number]
        self._captured = {key for key in self._captured if key[0] != number}
        self._thaw_and_send({"op": "unmap", "arena": number})
        self._conversation.answer(self._limits.call_seconds, "unmapping buffers")
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

    def _thaw_and_send(self, message: dict[str, Any], *descriptors: int) -> None:
        self._confined.thaw()
        self._conversation.ask(message, *descriptors)

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
        offer = {"op": "map", "arena": self._handed, "layout": arena.layout.to_json()}
        self._thaw_and_send(offer, arena.descriptor)
        self._conversation.answer(self._limits.prepare_seconds, "mapping buffers")
        self._freeze()

    def _freeze(self) -> None:
        """Stop it for good until it is woken, and see what it holds."""
        try:
            self._confined.freeze()
        except SandboxError:
            raise
        except MachineError as error:
            raise CandidateFault(Reason.HUNG, f"it cannot be stopped: {error}") from error
        self.require_bounds()

    def require_bounds(self) -> None:
        """Raises CandidateFault where it holds more than it may, or more processes help it to prepare."""
        if not self._is_sealed and (crowd := self._confined.other_count()) > MAX_HELPERS:
            detail = f"{crowd} processes of its own live beside it while it prepares; compilers need no more"
            raise CandidateFault(Reason.STARTED_PROCESS, f"{detail} than {MAX_HELPERS}")
        lent = sum(one.layout.nbytes for one in (*self._arenas.values(), self.loan) if one is not None)
        if self._confined.resident_bytes() > self._limits.memory_bytes + lent:
            most = self._limits.memory_bytes >> 20
            raise CandidateFault(Reason.OUT_OF_MEMORY, f"holds more than {most} MiB besides its buffers")

    def _require_frozen(self) -> None:
        """Raises CandidateFault where it ran when it was not its turn."""
        if self._confined.poll() is None and self._confined.ran_while_frozen():
            raise CandidateFault(Reason.BROKE_PROTOCOL, "ran while it was frozen")
