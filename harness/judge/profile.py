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

import torch

from harness.candidate.arena import Arena
from harness.candidate.process import CandidateProcess
from harness.case.contract import Tensors
from harness.device import cpu
from harness.errors import CandidateFault
from harness.judge.bench import Bench
from harness.judge.duel import GROWTH, POOL_BYTES
from harness.judge.gate import check_outputs, open_arena
from harness.judge.protocol import Progress, Watch
from harness.judge.rows import combine, parse_rows, printable
from harness.records import Bucket, ProblemTime, Side

SEGMENTS = 5
"""Timed segments of a problem; their median is told."""

DISTORTED = 2.0
"""How many times as long calls may take under the profiler before the profile says so."""

Answer = TypeVar("Answer")


@dataclass
class Look:
    """What was seen of one side so far. `take` raises MachineError and CaseError alone."""

    bench: Bench
    watch: Watch
    problems: list[ProblemTime] = field(default_factory=list)
    buckets: tuple[Bucket, ...] = ()
    detail: str = ""
    _crowded: str = ""

    def take(self, side: Side) -> None:
        """Time and profile every problem of the objective's suite, in turn."""
        try:
            with (
                self.bench.process(side) as timed,
                Profiled(self.bench.process(side, watched=True)) as profiled,
            ):
                profiled.attempt(CandidateProcess.await_loaded)
                timed.await_loaded()
                self._take_all(timed, profiled)
        except CandidateFault as fault:
            self.detail = printable(f"stopped while it was timed, {fault}")

    def _take_all(self, timed: CandidateProcess, profiled: Profiled) -> None:
        suite = self.bench.case.suites[self.bench.case.settings.objective.suite]
        for done, name in enumerate(suite.problems):
            self.watch(Progress(stage="profile", done=done, of=len(suite.problems)))
            problem = TimedProblem(self.bench, name, suite.distribution)
            problem.compile_both(timed, profiled)
            with problem.fitted(timed) as (arena, calls), self._others_watched(timed, profiled):
                times = [problem.segment(timed, arena, calls) for _ in range(SEGMENTS)]
                self.problems.append(problem.record(statistics.median(times)))
                problem.refresh(arena, calls)
                profiled.profile(arena, calls, statistics.median(times))
        self.buckets = profiled.buckets()
        self.detail = profiled.trouble() or self._crowded or profiled.distortion()

    @contextmanager
    def _others_watched(self, timed: CandidateProcess, profiled: Profiled) -> Iterator[None]:
        """Notes where other processes were at work: threads then wait for CPUs, and not for each other."""

        def own_seconds() -> float:
            return time.process_time() + timed.cpu_seconds() + profiled.cpu_seconds()

        start, own = cpu.read_counters(), own_seconds()
        yield
        environment = cpu.environment_since(start, own_seconds() - own)
        if cpu.is_contaminated(environment):
            busy = f"{environment.others:.1f} CPUs by other processes, {environment.steal:.0%} of all by the host"
            self._crowded = f"the machine was busy meanwhile ({busy}), so times and waits are too long"


class Profiled:
    """A watched process. The first fault ends it and is remembered; whatever is asked of it afterwards is left out."""

    def __init__(self, process: CandidateProcess) -> None:
        self._process, self._stack = process, ExitStack()
        self._stack.enter_context(process)
        self._tables: list[list[Bucket]] = []
        self._slowdown = 1.0
        self._trouble = ""

    def __enter__(self) -> Profiled:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def attempt(self, step: Callable[[CandidateProcess], Answer]) -> Answer | None:
        if self._trouble:
            return None
        try:
            return step(self._process)
        except CandidateFault as fault:
            self._trouble = printable(f"no buckets: under the profiler it stopped, {fault}")
            self._stack.close()
            return None

    def cpu_seconds(self) -> float:
        return self._process.cpu_seconds()

    def profile(self, arena: Arena, calls: int, seconds_per_call: float) -> None:
        """Run all slots under the profiler; `seconds_per_call` is what they take without it."""
        start = time.perf_counter()
        table = self.attempt(lambda process: parse_rows(process.profile(arena, 0, calls)))
        if table is not None:
            self._slowdown = max(self._slowdown, (time.perf_counter() - start) / calls / seconds_per_call)
            self._tables.append(table)

    def buckets(self) -> tuple[Bucket, ...]:
        return () if self._trouble else combine(self._tables)

    def trouble(self) -> str:
        """Why there are no buckets; empty where there are some."""
        if self._trouble or self.buckets():
            return self._trouble
        return "no buckets: the profiler was told of no function"

    def distortion(self) -> str:
        """What to know about buckets of functions that are entered often; empty where there is nothing."""
        if self._slowdown <= DISTORTED:
            return ""
        slower = f"under the profiler calls took {self._slowdown:.1f} times as long"
        return f"{slower}; shares of small functions may be too large"


@dataclass(frozen=True)
class TimedProblem:
    """One problem of the suite: fresh inputs for every call, and the judge's clock."""

    bench: Bench
    name: str
    distribution: str

    def record(self, seconds: float) -> ProblemTime:
        work = self.bench.contract.work(self.bench.contract.problems[self.name])
        return ProblemTime(problem=self.name, seconds_per_call=seconds, flops=work.flops, bytes=work.bytes)

    def compile_both(self, timed: CandidateProcess, profiled: Profiled) -> None:
        """The first call of each, at the same time, on slots of their own."""
        with open_arena(self.bench.contract, self.name, 2) as arena:
            self.refresh(arena, 2)
            profiled.attempt(lambda process: process.begin_compile(arena, 1))
            timed.begin_compile(arena, 0)
            timed.finish_compile()
            profiled.attempt(CandidateProcess.finish_compile)

    @contextmanager
    def fitted(self, timed: CandidateProcess) -> Iterator[tuple[Arena, int]]:
        """An arena with as many slots as calls fill a segment."""
        calls = 1
        while True:
            with open_arena(self.bench.contract, self.name, calls) as arena:
                wanted = self._calls(self.segment(timed, arena, calls), arena.layout.stride)
                if wanted < 1.5 * calls:
                    yield arena, calls
                    return
            calls = min(wanted, GROWTH * calls)

    def segment(self, timed: CandidateProcess, arena: Arena, calls: int) -> float:
        """Seconds per call over fresh inputs; the outputs of one call are checked."""
        inputs = self.refresh(arena, calls)
        seconds = timed.run(arena, 0, calls)
        slot = self.bench.secret.randrange(calls)
        budget = self.bench.case.settings.gate.error_budget
        where = f"{self.distribution} (while profiled)"
        check_outputs(self.bench.contract, self.name, arena, slot, inputs(slot), budget, where)
        return seconds / calls

    def refresh(self, arena: Arena, slots: int) -> Callable[[int], Tensors]:
        """New inputs and poisoned outputs; the inputs of a slot can be drawn again."""
        seeds = [self.bench.secret.getrandbits(62) for _ in range(slots)]

        def draw(slot: int) -> Tensors:
            contract, generator = self.bench.contract, torch.Generator().manual_seed(seeds[slot])
            return contract.inputs(contract.problems[self.name], self.distribution, generator)

        for slot in range(slots):
            arena.fill(slot, draw(slot))
        arena.poison(range(slots))
        return draw

    def _calls(self, seconds: float, slot_bytes: int) -> int:
        segment = self.bench.case.settings.duel.segment_ms / 1e3
        return min(max(1, POOL_BYTES // slot_bytes), max(1, round(segment / seconds)))
