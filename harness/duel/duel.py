"""A duel: two processes over the same buffers, timed in ABBA or BAAB blocks by the judge's clock.

Before every segment the judge draws new inputs and poisons all outputs, so a call can neither reuse an earlier
result nor skip its work; every timed call has a slot of its own. After every segment of the candidate's all outputs
must be written, and some slots chosen at random are compared with the reference. The side whose turn it is not is
frozen. All slots of a segment are in memory when it starts, so single calls are timed as well (`time_solo_block`).

On a GPU a segment begins with an untimed lead-in, since the first milliseconds after a switch between processes are
slower, and each side's own device events are recorded beside the judge's clock. At the word to go as many calls again
are run, so that the timed ones wait in the queue while the device works. The judge's clock counts them all, so they
have slots of their own, drawn and checked as those of the timed calls are.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Literal

from hillclimb.harness.case.contract import Contract, Tensors
from hillclimb.harness.case.settings import Suite
from hillclimb.harness.device.affinity import pinned, unpinned
from hillclimb.harness.duel import sizing
from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.duel.parity import check_guards, check_slot
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launch_spec import SegmentPlan, Timing
from hillclimb.harness.duel.process.parameters import bound
from hillclimb.harness.duel.residual_work import ResidualWorkDetector
from hillclimb.harness.duel.workload import DuelSettings, OutputProbe, Workload
from hillclimb.harness.errors import CandidateFault, IncumbentFault
from hillclimb.harness.records import Block, Reason
from hillclimb.harness.statistics.readings import SegmentSeconds

CHECKED_SLOTS = 3
"""Slots compared with the reference after a side's segment at the least; of the candidate's, more for as long as the
segment was to take. A kernel that leaves out a share f of its calls passes n of them with probability (1 - f)^n."""

MAX_CHECKED, KEPT_BYTES = 32, 1 << 30
"""Most slots of a segment whose inputs are kept for that, and most memory for them."""

WARM_CALLS = 8
"""Calls of each side on a GPU before anything is timed, where sizing has not made some."""

CPU_SIZING_RUNS, LONG_SIZING_SECONDS = 3, 0.2
"""Runs by which a CPU's segments are sized, unless one takes so many seconds. Beside three other duels on two cores 11
of 24 comparisons of a kernel with itself were sized by a burst of the others' work, down to a single call a segment,
and read 0.2x to 44x; with three looks none was, and they read 0.54x to 1.44x."""

PASSED_BUDGETS = 2.0
"""Error budgets that a side has which passed the gate and its own duels before. A night compares tens of thousands of
calls, and the worst of so many may be over the budget where the gate's few are close to it."""


Order = Literal["ABBA", "BAAB"]
ORDERS: tuple[Order, Order] = ("ABBA", "BAAB")

CleanBlock = tuple[Block, list[tuple[str, ...]]]
"""A block, and for each disturbed one that was dropped before it what disturbed that."""


class InterleavedDuel:
    """Two compiled processes, A the candidate and B its opponent, over one suite of problems.

    Raises CandidateFault for what A does wrong; the same of B, which has passed all this before, is an IncumbentFault.
    """

    def __init__(
        self,
        contract: Contract,
        suite: Suite,
        sides: tuple[CandidateProcess, CandidateProcess],
        settings: DuelSettings,
        budgets: tuple[float, float] = (1.0, PASSED_BUDGETS),
    ) -> None:
        """`budgets` are what either side may err, in error budgets of the case."""
        self.contract, self.suite, self.sides, self.settings = contract, suite, sides, settings
        self._budgets = budgets
        self.is_on_gpu = settings.device.kind == "cuda"
        self._stack = ExitStack()
        self._residual_work: ResidualWorkDetector[int] = ResidualWorkDetector()
        self._ran_last: int | None = None
        self._drawn: list[Order] = []
        self._crowded = 0
        self.workloads: list[Workload] = []

    def __enter__(self) -> InterleavedDuel:
        cores = self.settings.device.cores()
        self._stack.enter_context(pinned(cores, [side.pid for side in self.sides] if cores else []))
        self.contract = bound(self.contract, self.sides[0].parameters)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.__exit__(*exc)  # type: ignore[arg-type]

    def size_segments(self) -> float:
        """Size the segments; A's speed relative to B's, roughly."""
        ratios = []
        for problem in self.suite.problems:
            a, b = self._size_segment(problem)
            ratios.append(math.log(b / a))
        return math.exp(statistics.fmean(ratios))

    def prepare_segments(self) -> None:
        """As `size_segments`; a problem whose segments an earlier duel of these sides has sized keeps that size."""
        for problem in self.suite.problems:
            fitted = self.settings.segment_calls.get(problem)
            if fitted is None:
                self._size_segment(problem)
            else:
                self._warm_up(problem, fitted)

    def time_block(self) -> Block:
        """One block of whole segments."""
        return self._time_workloads(self.workloads)

    def time_solo_block(self) -> Block:
        """One block of single calls, in which nothing can be done for the next call beforehand."""
        return self._time_workloads(
            [
                replace(w, calls=(1, 1), lead_in_calls=min(w.lead_in_calls, 1), is_solo=True)
                for w in self.workloads
            ]
        )

    def check_distributions(self, distributions: Iterable[str]) -> None:
        """The very calls that are timed, on inputs of other distributions: the gate has called the kernel otherwise."""
        for distribution in distributions:
            for workload in self.workloads:
                source = self._source(workload.source.problem, distribution)
                self._time_segment(replace(workload, source=source), 0)

    def time_opponent_alone(self, segments: int) -> tuple[float, ...]:
        """End A, and time B with nobody beside it: seconds per call by segment, geometric mean over the problems.

        Raises CandidateFault where A has company that would live on.
        """
        self.sides[0].require_alone()
        self.sides[0].close()
        return tuple(
            math.exp(
                statistics.fmean(math.log(self._time_segment(w, 1).event_seconds) for w in self.workloads)
            )
            for _ in range(segments)
        )

    def _time_workloads(self, workloads: Sequence[Workload]) -> Block:
        order = self._order()
        device = self.settings.device
        start, own, self._crowded = device.read_state(), self._own_cpu_seconds(), 0
        taken = [
            [self._time_segment(workload, "AB".index(letter)) for letter in order] for workload in workloads
        ]
        environment = device.environment_since(start, self._own_cpu_seconds() - own)
        if self._crowded:
            environment = environment.model_copy(update={"crowded": self._crowded})
        wall, events, whole = (
            _means([[getattr(timing, name) for timing in turns] for turns in taken])
            for name in ("wall_seconds", "event_seconds", "wall_seconds_with_lead_in")
        )
        return Block(
            order=order,
            seconds=wall,
            events=events if self.is_on_gpu else None,
            whole=whole if self.is_on_gpu else None,
            environment=environment,
        )

    def _order(self) -> Order:
        """By a coin, and then the other one: what the order itself does to a block is in every second one reversed."""
        self._drawn = self._drawn or self.settings.secret.sample(ORDERS, 2)
        return self._drawn.pop()

    def _size_segment(self, problem: str) -> list[float]:
        """Grow the number of calls until each side's segment is long enough; seconds per call of both.

        Sizing runs are checked like timed ones, and have walked the memory once before anything is timed.
        """
        terms, source = self.settings, self._source(problem, self.suite.distribution)
        most = sizing.most_calls(terms.device, terms.cache, source.layout(1).stride)
        pace = terms.opponent_seconds.get(problem, 0.0)
        calls = (min(most, sizing.first_calls(terms.device, terms.segment_seconds, pace)),) * 2
        while True:
            with ExitStack() as stack:
                workload = self._workload(stack, source, calls)
                seconds = [self._measure_seconds_per_call(workload, side) for side in (0, 1)]
                wanted = self._calls(seconds, most)
                if all(w < sizing.MAX_CALL_SHORTFALL * c for w, c in zip(wanted, calls, strict=True)):
                    self._stack.push(stack.pop_all())
                    self.workloads.append(workload)
                    terms.segment_calls[problem] = calls
                    terms.opponent_seconds[problem] = seconds[1]
                    return seconds
            calls = (
                min(wanted[0], sizing.MAX_CALLS_GROWTH * calls[0]),
                min(wanted[1], sizing.MAX_CALLS_GROWTH * calls[1]),
            )

    def _measure_seconds_per_call(self, workload: Workload, side: int) -> float:
        """Seconds per call to size segments by; the least of some runs on a CPU, where others only add to it."""
        calls, seconds = workload.calls[side], math.inf
        for _ in range(1 if self.is_on_gpu else CPU_SIZING_RUNS):
            seen = sizing.plausible_seconds(self._time_segment(workload, side), calls)
            seconds = min(seconds, seen)
            if seen * calls > LONG_SIZING_SECONDS:
                break
        return seconds

    def _warm_up(self, problem: str, calls: tuple[int, int]) -> None:
        """A workload of a known size, run by each side as it will be timed; on a CPU, that walks its memory once."""
        with ExitStack() as stack:
            workload = self._workload(stack, self._source(problem, self.suite.distribution), calls)
            most = WARM_CALLS if workload.lead_in_calls else max(calls)
            few = min(most, calls[0]), min(most, calls[1])
            for side in (0, 1):
                self._time_segment(
                    replace(workload, calls=few, lead_in_calls=min(1, workload.lead_in_calls)), side
                )
            self._stack.push(stack.pop_all())
            self.workloads.append(workload)

    def _source(self, problem: str, distribution: str) -> InputSource:
        terms, place = self.settings, self.settings.device.torch_device
        source = InputSource(
            self.contract, problem, distribution, terms.secret, place, most_mixed=terms.most_mixed
        )
        return replace(source, batch=terms.batches.get(problem, distribution, source.draw_unchecked, place))

    def _workload(self, stack: ExitStack, source: InputSource, calls: tuple[int, int]) -> Workload:
        """Slots for so many calls of either side, in an arena that ends with the stack."""
        longest = sizing.segment_plan(self.settings.device, max(calls))
        arena = stack.enter_context(self._shared(source, len(longest.slots)))
        work = self.contract.work(self.contract.problems[source.problem])
        workload = Workload(source, arena, calls, longest.lead_in_calls, work)
        self._capture(workload)
        return workload

    def _capture(self, workload: Workload) -> None:
        """Both sides' launches at the same time, before any is timed; on one seat they would take turns.

        What is captured is run once: where calls change their inputs, by one side after the other.
        """
        arena = workload.arena
        with unpinned(self.settings.device.cores(), [side.pid for side in self.sides]):
            for together in ((0,), (1,)) if arena.layout.changed else ((0, 1),):
                if workload.lead_in_calls:
                    workload.source.fill_same(arena, range(arena.layout.slots))
                for side in together:
                    with attribute_faults(side):
                        self.sides[side].begin_capture(arena, workload.segment_plan(side))
                for side in together:
                    with attribute_faults(side):
                        self.sides[side].finish_capture()

    @contextmanager
    def _shared(self, source: InputSource, slots: int) -> Iterator[Arena]:
        """An arena that both sides let go of at the end, unless the duel ends with an error."""
        with source.arena(slots) as arena:
            yield arena
            for side in (0, 1):
                if not self.sides[side].is_closed:
                    with attribute_faults(side):
                        self.sides[side].unmap(arena)

    def _calls(self, seconds: Sequence[float], most: int) -> tuple[int, int]:
        """How many calls fill a segment; the same for both sides unless one is over twice as fast."""
        a, b = (sizing.calls_to_fill(s, self.settings.segment_seconds, most) for s in seconds)
        return (a, b) if max(a, b) > 2 * min(a, b) else (max(a, b), max(a, b))

    def _time_segment(self, workload: Workload, side: int) -> Timing:
        """Seconds per call of one side's calls over fresh inputs."""
        arena, turn, secret = workload.arena, workload.segment_plan(side), self.settings.secret
        kept = self._chosen(workload, turn, side)
        if arena.layout.changed and turn.lead_in_calls:  # no call is to find what another one has left
            workload.source.fill_same(arena, turn.slots)
        with attribute_faults(side):  # it replays the calls, so it comes before the inputs
            self.sides[side].capture(arena, turn)
        late = turn.timed if workload.is_solo and turn.lead_in_calls else range(0)
        inputs = self._refresh(workload, turn.slots[: len(turn.slots) - len(late)], kept)
        probe = OutputProbe(arena.words(turn.slots, secret.random()) if self.is_on_gpu else [])

        def fill_late() -> None:
            if late:
                inputs.update(workload.source.refresh(arena, late, kept))
                self.settings.reset_device()

        self._ran_last = side
        with attribute_faults(side):
            timing = self.sides[side].time(arena, turn, probe.read, fill_late)
            drawn = {slot: inputs[slot] for slot in kept}
            if (loan := self.sides[side].loan) is not None:
                loan.require_unchanged()
            self._check(workload, turn.slots, drawn, probe.unwritten_slot, self._budgets[side])
            probe.require_unchanged(workload.source.problem)
            timing = timing.per_call(turn)
            self._require_above_speed_of_light(workload, timing, turn.timed_calls)
        return timing

    def _chosen(self, workload: Workload, turn: SegmentPlan, side: int) -> list[int]:
        """Slots that may be compared with the reference, in the order in which they will be."""
        if side == 1:
            few = CHECKED_SLOTS if self.is_on_gpu else 0
        else:
            few = max(CHECKED_SLOTS, min(MAX_CHECKED, KEPT_BYTES // workload.arena.layout.stride))
        return self.settings.secret.sample(turn.slots, min(few, len(turn.slots)))

    def _refresh(self, workload: Workload, slots: range, kept: Sequence[int]) -> dict[int, Tensors]:
        """New inputs, poisoned outputs, a settled device; and an ear for work that the last side left running there."""
        start = time.perf_counter()
        inputs = workload.source.refresh(workload.arena, slots, kept)
        self.settings.reset_device()
        if not self.is_on_gpu:
            return inputs
        key = (workload.source.problem, workload.source.distribution, len(slots))
        self._crowded += self._residual_work.record(key, time.perf_counter() - start, self._ran_last)
        culprit = self._residual_work.culprit()
        if culprit is not None:
            with attribute_faults(culprit):
                slow = self._residual_work.slow_counts()[culprit]
                detail = f"the GPU was still busy after {slow} of its turns, and never after the other side's"
                raise CandidateFault(Reason.LEFT_WORK_RUNNING, detail)
        return inputs

    def _check(
        self,
        workload: Workload,
        slots: range,
        inputs: dict[int, Tensors],
        missing: int | None,
        budgets: float,
    ) -> None:
        """Every slot must be written, and those chosen at random before must be right, as many as there is time for."""
        if not inputs:
            return
        source, arena = workload.source, workload.arena
        slot = arena.first_unwritten_slot(slots) if missing is None else missing
        if slot is not None:
            detail = f"problem {source.problem}: call {slot + 1} of the {len(slots)} of a segment wrote no whole output"
            raise CandidateFault(Reason.OUTPUT_NOT_WRITTEN, detail)
        where, start = f"{source.distribution} (while timed)", time.perf_counter()
        budget = budgets * self.settings.error_budget
        check_guards(source.problem, arena, where)
        for done, (slot, drawn) in enumerate(inputs.items()):
            if done >= CHECKED_SLOTS and time.perf_counter() - start > self.settings.segment_seconds:
                return
            check_slot(self.contract, source.problem, arena, slot, drawn, budget, where)

    def _require_above_speed_of_light(self, workload: Workload, timing: Timing, calls: int) -> None:
        """Nothing is faster than the device can move what must be moved: a cheat, or a contract that miscounts."""
        terms = self.settings
        seconds = min(timing.event_seconds, timing.wall_seconds)
        floor = terms.device.floor_seconds(workload.work, calls, terms.cache)
        if seconds < floor:
            detail = (
                f"problem {workload.source.problem}: {seconds * 1e6:.3f} us a call, but by the contract's bytes and "
                f"FLOPs this device needs {floor * 1e6:.3f} us at the least: a cheat, or a wrong contract"
            )
            raise CandidateFault(Reason.TOO_FAST, detail)

    def _own_cpu_seconds(self) -> float:
        return time.process_time() + sum(side.cpu_seconds() for side in self.sides)


@contextmanager
def attribute_faults(side: int) -> Iterator[None]:
    """A fault of side B is not the candidate's: B won its place by passing the same checks."""
    try:
        yield
    except CandidateFault as fault:
        if side == 0:
            raise
        raise IncumbentFault(f"the incumbent failed in a duel, having passed before: {fault}") from fault


def _means(problems: Sequence[Sequence[float]]) -> SegmentSeconds:
    """Of each of the four segments, the geometric mean over the problems."""
    a, b, c, d = (math.exp(statistics.fmean(map(math.log, turn))) for turn in zip(*problems, strict=True))
    return a, b, c, d
