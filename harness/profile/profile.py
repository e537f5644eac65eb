"""A look inside one side: time per problem by the judge's clock, and where the side itself says it goes.

Two fresh processes, one timed and one under the profiler, so that neither disturbs the other. No verdict hangs on any
of it. Some outputs are checked while timed, so that the times are of a kernel that does its work. A candidate that
fails ends the look with what is known by then, and a sentence on what it did.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from hillclimb.harness.case.settings import Suite
from hillclimb.harness.duel import sizing
from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.duel.parity import check_outputs
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launch_spec import SegmentPlan
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.profile.rows import combine, parse_rows, printable, whole
from hillclimb.harness.records import Bucket, ProblemTime, Progress, Side, Watch

SEGMENTS = 5
"""Timed segments of a problem; their median is told."""

MAX_PROFILER_SLOWDOWN = 2.0
"""How many times as long calls may take under the profiler before the profile says so."""

StepResult = TypeVar("StepResult")


@dataclass
class SideProfile:
    """What was seen of one side so far. `take` raises MachineError and CaseError alone."""

    duels: DuelFactory
    watch: Watch
    problems: list[ProblemTime] = field(default_factory=list)
    buckets: tuple[Bucket, ...] = ()
    detail: str = ""
    _crowded: str = ""

    def measure(self, side: Side, suite: str = "") -> None:
        """Time and profile every problem of a suite (the objective's), in turn."""
        try:
            with (
                self.duels.launcher.launch(side) as timed,
                ProfiledProcess(self.duels.launcher.launch(side, watched=True)) as profiled,
            ):
                profiled.attempt(CandidateProcess.await_loaded)
                timed.await_loaded()
                profiled.attempt(CandidateProcess.take_parameters)
                timed.take_parameters()
                self._take_all(timed, profiled, self.duels.suite(suite))
        except CandidateFault as fault:
            self.detail = printable(f"stopped while it was timed, {fault}")

    def _take_all(self, timed: CandidateProcess, profiled: ProfiledProcess, suite: Suite) -> None:
        for done, name in enumerate(suite.problems):
            self.watch(Progress(stage="profile", done=done, of=len(suite.problems)))
            problem = TimedProblem(self.duels, self.duels.source(name, suite.distribution))
            problem.compile_both(timed, profiled)
            with problem.sized_segment(timed) as (arena, turn), self._noting_busy_machine(timed, profiled):
                times = [problem.segment(timed, arena, turn) for _ in range(SEGMENTS)]
                self.problems.append(problem.record(statistics.median(times)))
                problem.refresh(arena)
                profiled.profile(arena, turn.timed_calls, statistics.median(times))
        self.buckets = profiled.buckets()
        self.detail = profiled.failure() or "; ".join(
            filter(None, (self._crowded, profiled.slowdown_warning()))
        )

    @contextmanager
    def _noting_busy_machine(self, timed: CandidateProcess, profiled: ProfiledProcess) -> Iterator[None]:
        """Notes where other processes were at work: threads then wait for CPUs, and not for each other."""

        def own_seconds() -> float:
            return time.process_time() + timed.cpu_seconds() + profiled.cpu_seconds()

        device = self.duels.device
        start, own = device.read_state(), own_seconds()
        yield
        environment = device.environment_since(start, own_seconds() - own)
        if device.disturbances(environment):
            busy = f"{environment.others:.1f} CPUs by other processes, {environment.steal:.0%} of all by the host"
            self._crowded = f"the machine was busy meanwhile ({busy}), so times and waits are too long"


class ProfiledProcess:
    """A watched process. The first fault ends it and is remembered; whatever is asked of it afterwards is left out."""

    def __init__(self, process: CandidateProcess) -> None:
        self._process, self._stack = process, ExitStack()
        self._stack.enter_context(process)
        self._tables: list[list[Bucket]] = []
        self._slowdown = 1.0
        self._failure = ""

    def __enter__(self) -> ProfiledProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def attempt(self, step: Callable[[CandidateProcess], StepResult]) -> StepResult | None:
        if self._failure:
            return None
        try:
            return step(self._process)
        except CandidateFault as fault:
            self._failure = printable(f"no buckets: under the profiler it stopped, {fault}")
            self._stack.close()
            return None

    def cpu_seconds(self) -> float:
        return self._process.cpu_seconds()

    def profile(self, arena: Arena, calls: int, seconds_per_call: float) -> None:
        """Run all slots under the profiler; `seconds_per_call` is what they take without it."""
        table = self.attempt(lambda process: _profile(process, arena, calls))
        if table is not None:
            self._slowdown = max(self._slowdown, whole(table) / seconds_per_call)
            self._tables.append(table)

    def buckets(self) -> tuple[Bucket, ...]:
        return () if self._failure else combine(self._tables)

    def failure(self) -> str:
        """Why there are no buckets; empty where there are some."""
        if self._failure or self.buckets():
            return self._failure
        return "no buckets: the profiler was told of no function"

    def slowdown_warning(self) -> str:
        """What to know about buckets of what is entered often; empty where there is nothing."""
        if self._slowdown <= MAX_PROFILER_SLOWDOWN:
            return ""
        slower = f"under the profiler calls took {self._slowdown:.1f} times as long"
        return f"{slower}; shares of small functions, and gaps between kernels, may be too large"


@dataclass(frozen=True)
class TimedProblem:
    """One problem of the suite: fresh inputs for every call, and the judge's clock."""

    duels: DuelFactory
    source: InputSource

    def record(self, seconds: float) -> ProblemTime:
        name, contract = self.source.problem, self.duels.contract
        work = contract.work(contract.problems[name])
        return ProblemTime(problem=name, seconds_per_call=seconds, flops=work.flops, bytes=work.bytes)

    def compile_both(self, timed: CandidateProcess, profiled: ProfiledProcess) -> None:
        """The first call of each, at the same time, on slots of their own."""
        with self.source.arena(2) as arena:
            self.refresh(arena)
            profiled.attempt(lambda process: process.begin_compile(arena, 1))
            timed.begin_compile(arena, 0)
            timed.finish_compile()
            profiled.attempt(CandidateProcess.finish_compile)
            timed.unmap(arena)
            profiled.attempt(lambda process: process.unmap(arena))

    @contextmanager
    def sized_segment(self, timed: CandidateProcess) -> Iterator[tuple[Arena, SegmentPlan]]:
        """An arena with a slot for every call of a segment, and which of them are timed."""
        terms, pace = self.duels.duel_settings(), self.duels.opponent_seconds.get(self.source.problem, 0.0)
        device, segment = terms.device, terms.segment_seconds
        most = sizing.most_calls(device, terms.cache, self.source.layout(1).stride)
        calls = min(most, sizing.first_calls(device, segment, pace))
        while True:
            turn = sizing.segment_plan(device, calls)
            with self.source.arena(len(turn.slots)) as arena:
                seconds = self.segment(timed, arena, turn)
                wanted = sizing.calls_to_fill(seconds, segment, most)
                if wanted < sizing.MAX_CALL_SHORTFALL * calls:
                    yield arena, turn
                    timed.unmap(arena)
                    return
                timed.unmap(arena)
            calls = min(wanted, sizing.MAX_CALLS_GROWTH * calls)

    def segment(self, timed: CandidateProcess, arena: Arena, plan: SegmentPlan) -> float:
        """Seconds per call over fresh inputs; the outputs of one call are checked."""
        slot = self.duels.secret.choice(plan.timed)
        inputs = self.source.refresh(arena, plan.slots, (slot,))[slot]
        self.duels.duel_settings().reset_device()
        timing = timed.time(arena, plan).per_call(plan)
        budget = self.duels.case.settings.gate.error_budget
        where = f"{self.source.distribution} (while profiled)"
        check_outputs(self.duels.contract, self.source.problem, arena, slot, inputs, budget, where)
        return sizing.plausible_seconds(timing, plan.timed_calls)

    def refresh(self, arena: Arena) -> None:
        """New inputs and poisoned outputs in every slot."""
        self.source.refresh(arena, range(arena.layout.slots))
        self.duels.device.synchronize()


def _profile(process: CandidateProcess, arena: Arena, calls: int) -> list[Bucket]:
    buckets = parse_rows(process.profile(arena, 0, calls))
    process.unmap(arena)
    return buckets
