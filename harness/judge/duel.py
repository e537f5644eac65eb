"""A duel: two processes over the same buffers, timed in ABBA or BAAB blocks by the judge's clock.

Before every segment the judge draws new inputs and poisons all outputs, so a call can neither reuse an earlier
result nor skip its work; every timed call has a slot of its own. After every segment of the candidate's all outputs
must be written, and some slots chosen at random are compared with the reference. The side whose turn it is not is
frozen. All slots of a segment are in memory when it starts, so single calls are timed as well (`solo_block`).

On a GPU a segment begins with an untimed lead-in, since the first milliseconds after a switch between processes are
slower, and each side's own device events are recorded beside the judge's clock. At the word to go as many calls again
are run, so that the timed ones wait in the queue while the device works. The judge's clock counts them all, so they
have slots of their own, drawn and checked as those of the timed calls are.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.candidate.arena import Arena, Words, first_poisoned
from harness.candidate.process import CandidateProcess, Timing, Turn
from harness.case.case import Suite
from harness.case.contract import Contract, Tensors, Work
from harness.device.device import Device
from harness.device.quiet import Quiet
from harness.device.seats import seated, unseated
from harness.errors import CandidateFault, MachineError
from harness.judge import sizing
from harness.judge.batches import Batches
from harness.judge.fresh import Source
from harness.judge.gate import check_guards, check_slot
from harness.readings import Four
from harness.records import Block, Reason

CHECKED_SLOTS = 3
"""Slots compared with the reference after a side's segment at the least; of the candidate's, more for as long as the
segment was to take. A kernel that leaves out a share f of its calls passes n of them with probability (1 - f)^n."""

MOST_CHECKED, KEPT_BYTES = 32, 1 << 30
"""Most slots of a segment whose inputs are kept for that, and most memory for them."""

WARM_CALLS = 8
"""Calls of each side on a GPU before anything is timed, where sizing has not made some."""

LOOKS, LONG_LOOK = 3, 0.2
"""Runs by which a CPU's segments are sized, unless one takes so many seconds. Beside three other duels on two cores 11
of 24 comparisons of a kernel with itself were sized by a burst of the others' work, down to a single call a segment,
and read 0.2x to 44x; with three looks none was, and they read 0.54x to 1.44x."""

NEVER_QUIET = 4
"""Disturbed blocks one after another after which waiting for a quiet one is given up."""

Order = Literal["ABBA", "BAAB"]
ORDERS: tuple[Order, Order] = ("ABBA", "BAAB")

CleanBlock = tuple[Block, list[tuple[str, ...]]]
"""A block, and for each disturbed one that was dropped before it what disturbed that."""


@dataclass(frozen=True)
class Terms:
    """What a duel is fought under, besides problems and sides."""

    device: Device
    segment_seconds: float
    error_budget: float
    cache: Literal["cold", "hot"]
    secret: random.Random
    paces: dict[str, float] = field(default_factory=dict)
    """Seconds a call of the last opponent's, by problem: where the next duel's sizing begins."""
    fitted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Calls of both sides' segments, by problem, as an earlier duel of the same two sides found them."""
    batches: Batches = field(default_factory=Batches)

    def settle(self) -> None:
        """See to it that every segment starts from the same state: nothing running, and in the cache what is to be."""
        self.device.rest()
        if self.cache == "cold":
            self.device.flush_cache()
        self.device.synchronize()


@dataclass(frozen=True)
class Workload:
    """One timed problem: its slots, and how many calls each side makes in a segment."""

    source: Source
    arena: Arena
    calls: tuple[int, int]
    """Of A and of B. Equal unless one side is over twice as fast."""
    lead: int
    """Calls of the lead-in; 0 on a CPU."""
    work: Work
    is_solo: bool = False
    """Single calls, whose inputs come after the lead-in: nothing can be done for them beforehand. They are not fed."""

    def turn(self, side: int) -> Turn:
        return Turn(self.calls[side], self.lead, 0 if self.is_solo else self.lead)


@dataclass
class Probe:
    """A word of every call's outputs, looked at before the judge's clock stops for good."""

    words: list[Words]
    missing: int | None = None
    """The first slot that carries the poison there."""

    def look(self) -> None:
        self.missing = first_poisoned(self.words)


class Duel:
    """Two compiled processes, A the candidate and B its opponent, over one suite of problems.

    Raises CandidateFault for what A does wrong; the same of B, which has passed all this before, is a MachineError.
    """

    def __init__(
        self,
        contract: Contract,
        suite: Suite,
        sides: tuple[CandidateProcess, CandidateProcess],
        terms: Terms,
    ) -> None:
        self.contract, self.suite, self.sides, self.terms = contract, suite, sides, terms
        self.is_on_gpu = terms.device.kind == "cuda"
        self._stack = ExitStack()
        self._quiet: Quiet[int] = Quiet()
        self._ran_last: int | None = None
        self._drawn: list[Order] = []
        self._crowded = 0
        self.workloads: list[Workload] = []

    def __enter__(self) -> Duel:
        cores = self.terms.device.cores()
        self._stack.enter_context(seated(cores, [side.pid for side in self.sides] if cores else []))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.__exit__(*exc)  # type: ignore[arg-type]

    def probe(self) -> float:
        """Size the segments; A's speed relative to B's, roughly."""
        ratios = []
        for problem in self.suite.problems:
            a, b = self._fit(problem)
            ratios.append(math.log(b / a))
        return math.exp(statistics.fmean(ratios))

    def take_up(self) -> None:
        """As `probe`, but where an earlier duel of the same sides has sized a problem's segments, by that one."""
        for problem in self.suite.problems:
            fitted = self.terms.fitted.get(problem)
            if fitted is None:
                self._fit(problem)
            else:
                self._warm_up(problem, fitted)

    def block(self) -> Block:
        """One block of whole segments."""
        return self._block(self.workloads)

    def solo_block(self) -> Block:
        """One block of single calls, in which nothing can be done for the next call beforehand."""
        return self._block(
            [replace(w, calls=(1, 1), lead=min(w.lead, 1), is_solo=True) for w in self.workloads]
        )

    def check_elsewhere(self, distributions: Iterable[str]) -> None:
        """The very calls that are timed, on inputs of other distributions: the gate has called the kernel otherwise."""
        for distribution in distributions:
            for workload in self.workloads:
                source = self._source(workload.source.problem, distribution)
                self._segment(replace(workload, source=source), 0)

    def opponent_alone(self, segments: int) -> tuple[float, ...]:
        """End A, and time B with nobody beside it: seconds per call by segment, geometric mean over the problems.

        Raises CandidateFault where A has company that would live on.
        """
        self.sides[0].expect_alone()
        self.sides[0].close()
        return tuple(
            math.exp(statistics.fmean(math.log(self._segment(w, 1).told) for w in self.workloads))
            for _ in range(segments)
        )

    def _block(self, workloads: Sequence[Workload]) -> Block:
        order = self._order()
        device = self.terms.device
        start, own, self._crowded = device.start(), self._own_cpu_seconds(), 0
        taken = [[self._segment(workload, "AB".index(letter)) for letter in order] for workload in workloads]
        environment = device.since(start, self._own_cpu_seconds() - own)
        if self._crowded:
            environment = environment.model_copy(update={"crowded": self._crowded})
        return Block(
            order=order,
            seconds=_means([[timing.seconds for timing in turns] for turns in taken]),
            events=_means([[timing.told for timing in turns] for turns in taken]) if self.is_on_gpu else None,
            whole=_means([[timing.whole for timing in turns] for turns in taken]) if self.is_on_gpu else None,
            environment=environment,
        )

    def _order(self) -> Order:
        """By a coin, and then the other one: what the order itself does to a block is in every second one reversed."""
        self._drawn = self._drawn or self.terms.secret.sample(ORDERS, 2)
        return self._drawn.pop()

    def _fit(self, problem: str) -> list[float]:
        """Grow the number of calls until each side's segment is long enough; seconds per call of both.

        Sizing runs are checked like timed ones, and have walked the memory once before anything is timed.
        """
        terms, source = self.terms, self._source(problem, self.suite.distribution)
        most = sizing.most_calls(terms.device, terms.cache, source.layout(1).stride)
        pace = terms.paces.get(problem, 0.0)
        calls = (min(most, sizing.first_calls(terms.device, terms.segment_seconds, pace)),) * 2
        while True:
            with ExitStack() as stack:
                workload = self._workload(stack, source, calls)
                seconds = [self._pace(workload, side) for side in (0, 1)]
                wanted = self._calls(seconds, most)
                if all(w < sizing.ENOUGH * c for w, c in zip(wanted, calls, strict=True)):
                    self._stack.push(stack.pop_all())
                    self.workloads.append(workload)
                    terms.fitted[problem] = calls
                    terms.paces[problem] = seconds[1]
                    return seconds
            calls = (min(wanted[0], sizing.GROWTH * calls[0]), min(wanted[1], sizing.GROWTH * calls[1]))

    def _pace(self, workload: Workload, side: int) -> float:
        """Seconds per call to size segments by; the least of some runs on a CPU, where others only add to it."""
        calls, seconds = workload.calls[side], math.inf
        for _ in range(1 if self.is_on_gpu else LOOKS):
            seen = sizing.believable(self._segment(workload, side), calls)
            seconds = min(seconds, seen)
            if seen * calls > LONG_LOOK:
                break
        return seconds

    def _warm_up(self, problem: str, calls: tuple[int, int]) -> None:
        """A workload of a known size, run by each side as it will be timed; on a CPU, that walks its memory once."""
        with ExitStack() as stack:
            workload = self._workload(stack, self._source(problem, self.suite.distribution), calls)
            most = WARM_CALLS if workload.lead else max(calls)
            few = min(most, calls[0]), min(most, calls[1])
            for side in (0, 1):
                self._segment(replace(workload, calls=few, lead=min(1, workload.lead)), side)
            self._stack.push(stack.pop_all())
            self.workloads.append(workload)

    def _source(self, problem: str, distribution: str) -> Source:
        terms, place = self.terms, self.terms.device.torch_device
        source = Source(self.contract, problem, distribution, terms.secret, place)
        return replace(source, batch=terms.batches.of(problem, distribution, source.draw_more, place))

    def _workload(self, stack: ExitStack, source: Source, calls: tuple[int, int]) -> Workload:
        """Slots for so many calls of either side, in an arena that ends with the stack."""
        longest = sizing.turn(self.terms.device, max(calls))
        arena = stack.enter_context(self._shared(source, len(longest.slots)))
        if longest.lead:  # what is captured is run once, on whatever lies there
            source.repeat(arena, longest.slots)
        work = self.contract.work(self.contract.problems[source.problem])
        workload = Workload(source, arena, calls, longest.lead, work)
        self._capture(workload)
        return workload

    def _capture(self, workload: Workload) -> None:
        """Both sides' launches at the same time, before any is timed; on one seat they would take turns."""
        with unseated(self.terms.device.cores(), [side.pid for side in self.sides]):
            for side in (0, 1):
                with blame(side):
                    self.sides[side].begin_capture(workload.arena, workload.turn(side))
            for side in (0, 1):
                with blame(side):
                    self.sides[side].finish_capture()

    @contextmanager
    def _shared(self, source: Source, slots: int) -> Iterator[Arena]:
        """An arena that both sides let go of at the end, unless the duel ends with an error."""
        with source.arena(slots) as arena:
            yield arena
            for side in (0, 1):
                if not self.sides[side].is_closed:
                    with blame(side):
                        self.sides[side].forget(arena)

    def _calls(self, seconds: Sequence[float], most: int) -> tuple[int, int]:
        """How many calls fill a segment; the same for both sides unless one is over twice as fast."""
        a, b = (sizing.wanted_calls(s, self.terms.segment_seconds, most) for s in seconds)
        return (a, b) if max(a, b) > 2 * min(a, b) else (max(a, b), max(a, b))

    def _segment(self, workload: Workload, side: int) -> Timing:
        """Seconds per call of one side's calls over fresh inputs."""
        arena, turn, secret = workload.arena, workload.turn(side), self.terms.secret
        kept = self._chosen(workload, turn, side)
        with blame(side):  # it replays the calls, so it comes before the inputs
            self.sides[side].capture(arena, turn)
        late = turn.timed if workload.is_solo and turn.lead else range(0)
        inputs = self._refresh(workload, turn.slots[: len(turn.slots) - len(late)], kept)
        probe = Probe(arena.words(turn.slots, secret.random()) if self.is_on_gpu else [])

        def fill_late() -> None:
            if late:
                inputs.update(workload.source.refresh(arena, late, kept))
                self.terms.settle()

        self._ran_last = side
        with blame(side):
            timing = self.sides[side].time(arena, turn, probe.look, fill_late)
            self._check(workload, turn.slots, {slot: inputs[slot] for slot in kept}, probe.missing)
            timing = timing.per_call(turn)
            self._expect_above_floor(workload, timing, turn.count)
        return timing

    def _chosen(self, workload: Workload, turn: Turn, side: int) -> list[int]:
        """Slots that may be compared with the reference, in the order in which they will be."""
        if side == 1:
            few = CHECKED_SLOTS if self.is_on_gpu else 0
        else:
            few = max(CHECKED_SLOTS, min(MOST_CHECKED, KEPT_BYTES // workload.arena.layout.stride))
        return self.terms.secret.sample(turn.slots, min(few, len(turn.slots)))

    def _refresh(self, workload: Workload, slots: range, kept: Sequence[int]) -> dict[int, Tensors]:
        """New inputs, poisoned outputs, a settled device; and an ear for work that the last side left running there."""
        start = time.perf_counter()
        inputs = workload.source.refresh(workload.arena, slots, kept)
        self.terms.settle()
        if not self.is_on_gpu:
            return inputs
        key = (workload.source.problem, workload.source.distribution, len(slots))
        self._crowded += self._quiet.hear(key, time.perf_counter() - start, self._ran_last)
        culprit = self._quiet.culprit()
        if culprit is not None:
            with blame(culprit):
                slow = self._quiet.slow()[culprit]
                detail = f"the GPU was still busy after {slow} of its turns, and never after the other side's"
                raise CandidateFault(Reason.LEFT_WORK_RUNNING, detail)
        return inputs

    def _check(
        self, workload: Workload, slots: range, inputs: dict[int, Tensors], missing: int | None
    ) -> None:
        """Every slot must be written, and those chosen at random before must be right, as many as there is time for."""
        if not inputs:
            return
        source, arena = workload.source, workload.arena
        slot = arena.unwritten(slots) if missing is None else missing
        if slot is not None:
            detail = f"problem {source.problem}: call {slot + 1} of the {len(slots)} of a segment wrote no whole output"
            raise CandidateFault(Reason.OUTPUT_NOT_WRITTEN, detail)
        where, start = f"{source.distribution} (while timed)", time.perf_counter()
        check_guards(source.problem, arena, where)
        for done, (slot, drawn) in enumerate(inputs.items()):
            if done >= CHECKED_SLOTS and time.perf_counter() - start > self.terms.segment_seconds:
                return
            check_slot(self.contract, source.problem, arena, slot, drawn, self.terms.error_budget, where)

    def _expect_above_floor(self, workload: Workload, timing: Timing, calls: int) -> None:
        """Nothing is faster than the device can move what must be moved: a cheat, or a contract that miscounts."""
        terms = self.terms
        seconds = min(timing.told, timing.seconds)
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
def blame(side: int) -> Iterator[None]:
    """A fault of side B is not the candidate's: B won its place by passing the same checks."""
    try:
        yield
    except CandidateFault as fault:
        if side == 0:
            raise
        raise MachineError(f"the incumbent failed in a duel, having passed before: {fault}") from fault


def clean_blocks(device: Device, take: Callable[[], Block], count: int) -> Iterator[CleanBlock]:
    """`count` blocks, each with why others were dropped before it; at most `count` drops in all.

    A machine that was not quiet for NEVER_QUIET blocks on end is measured as it is until it is quiet again, and its
    environment recorded.
    """
    drops_left, is_awaited = count, True
    for _ in range(count):
        dropped: list[tuple[str, ...]] = []
        block = take()
        while (causes := device.disturbances(block.environment)) and is_awaited and drops_left:
            dropped.append(causes)
            drops_left, is_awaited = drops_left - 1, len(dropped) < NEVER_QUIET
            block = take()
        is_awaited = is_awaited or not causes
        yield block, dropped


def _means(problems: Sequence[Sequence[float]]) -> Four:
    """Of each of the four segments, the geometric mean over the problems."""
    a, b, c, d = (math.exp(statistics.fmean(map(math.log, turn))) for turn in zip(*problems, strict=True))
    return a, b, c, d
