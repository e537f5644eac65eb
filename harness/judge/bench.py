"""The bench of one case: every candidate process, pair and duel is set up here."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.candidate.arena import Arena
from harness.candidate.process import CandidateProcess
from harness.case.case import Case, Suite
from harness.case.checked import check_contract
from harness.case.contract import Contract
from harness.device.device import Device
from harness.errors import CaseError, UsageError
from harness.judge.batches import Batches
from harness.judge.clocks import Clocks
from harness.judge.duel import CleanBlock, Duel, Terms, blame, clean_blocks
from harness.judge.fresh import Source
from harness.judge.protocol import Progress, Watch
from harness.judge.stable import Stable
from harness.readings import Letter, middle_log_ratio, seconds_of
from harness.records import Pair, Side

Stage = Literal["noise", "screen", "decide", "alone", "report", "cumulative", "guardrail"]
Processes = tuple[CandidateProcess, CandidateProcess]
"""A, the candidate, and B, its opponent."""

MOST_PAIRS = 6
"""Fresh pairs that are got ready at the same time on a GPU."""

PAIRS_MORE = 2
"""Of those that are wanted besides the likely ones."""

SOLO_BLOCKS = 8
"""Blocks of single calls in a deciding pair."""

SHOWS_ALONE = 0.02
"""Log ratio that single calls must be able to show before anything is demanded of them."""

GUARDRAIL_BLOCKS = 1
"""Blocks of each guardrail suite in every deciding pair; it is the pairs that count."""

SCREENING_SHARE = 0.5
"""Length of a screening's segments on a GPU, as a share of the case's."""

CONTROL_SEGMENTS = 4
"""Segments of the opponent by itself, at the end of a controlled pair."""


@dataclass(frozen=True)
class Bench:
    """Raises CandidateFault for what A does, MachineError for what anything else does."""

    case: Case
    contract: Contract
    stable: Stable
    device: Device
    secret: random.Random
    clocks: Clocks = field(default_factory=Clocks)
    paces: dict[str, float] = field(default_factory=dict)
    """As Terms.paces; they last as long as the judge."""
    fitted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """As Terms.fitted; of the two sides whose processes were born last."""
    batches: Batches = field(default_factory=Batches)
    leaving: list[CandidateProcess] = field(default_factory=list)
    """Told to end, and not waited for yet."""

    @contextmanager
    def pair(self, candidate: Side, opponent: Side) -> Iterator[Processes]:
        """Two fresh processes importing at the same time; the opponent is loaded."""
        self.fitted.clear()
        with ExitStack() as stack:
            yield self._born(stack, candidate, opponent, 1)[0]

    def each_pair(
        self,
        candidate: Side,
        opponent: Side,
        most: int,
        watch: Watch,
        *,
        from_source: bool = False,
        problems: Sequence[str] = (),
        is_gated: bool = False,
        likely: int = 0,
    ) -> Generator[Processes, None, None]:
        """Up to `most` fresh pairs, one at a time, with `problems` compiled on both; every timed one unless told.

        The first candidate's process has the gate's problems compiled too if it `is_gated`.
        On a GPU some are got ready together, since nothing that touches it may start beside a measurement; until it is
        their turn they are frozen. First those that are `likely` to be wanted, all unless told, then a few at a time.
        Close the iterator to end those that are left.
        """
        self.fitted.clear()
        done = 0
        while done < most:
            together = PAIRS_MORE if done else min(likely or most, MOST_PAIRS)
            count = min(together if self.device.kind == "cuda" else 1, most - done)
            with ExitStack() as stack:
                born = self._born(stack, candidate, opponent, count, from_source=from_source)
                self.make_ready(born, watch, problems, is_gated=is_gated and done == 0)
                yield from born
            done += count

    def _born(
        self,
        stack: ExitStack,
        candidate: Side,
        opponent: Side,
        count: int,
        *,
        from_source: bool = False,
    ) -> list[Processes]:
        """Fresh pairs, each born in a coin's order, sent off with the stack; the opponents are loaded.

        Those that were sent off before end while these import: a CUDA context takes its time to go.
        """
        pairs: list[Processes] = []
        for _ in range(count):
            born: dict[int, CandidateProcess] = {}
            for side in self.secret.sample((0, 1), 2):
                with blame(side):
                    born[side] = self.stable.process((candidate, opponent)[side], from_source=from_source)
                stack.callback(self._send_off, born[side])
            pairs.append((born[0], born[1]))
        try:
            for _, process in pairs:
                with blame(1):
                    process.await_loaded()
        finally:
            self.reap()
        return pairs

    def _send_off(self, process: CandidateProcess) -> None:
        if not process.is_closed:
            self.leaving.append(process)
            process.end()

    def reap(self) -> None:
        """Wait for whatever was sent off, for all of it whatever one of them does."""
        with ExitStack() as stack:
            while self.leaving:
                stack.callback(self.leaving.pop().close)

    def make_ready(
        self, born: Sequence[Processes], watch: Watch, problems: Sequence[str] = (), *, is_gated: bool = False
    ) -> None:
        """Load the candidates, compile `problems` (every timed one) on all, the gate's on the first; then seal."""
        sides = [(side, process) for pair in born for side, process in enumerate(pair)]
        for process, _ in born:
            process.await_loaded()
        self.compile(sides, problems or self.timed_problems(), watch)
        if is_gated:
            timed = self.timed_problems()
            untimed = [name for name in self.gated_problems() if name not in timed]
            self.compile(sides[:1], untimed, watch)
        self.seal(sides)

    def compile(
        self, sides: Sequence[tuple[int, CandidateProcess]], problems: Sequence[str], watch: Watch
    ) -> None:
        """The first call on every problem, which may compile, of many at the same time; 0 is the candidate's side.

        Each is told, since it may take its time. Nothing is timed yet, and nothing is looked at. A side that tunes
        itself in its first call has the device alone.
        """
        alone = [[one] for one in sides if one[1].tunes_itself]
        together = [one for one in sides if not one[1].tunes_itself]
        for done, problem in enumerate(problems):
            watch(Progress(stage="prepare", done=done, of=len(problems)))
            source = self.source(problem, self.contract.distributions[0])
            with source.arena(2) as arena:
                source.refresh(arena, range(2))
                for group in (together, *alone):
                    self._compile_together(group, arena)

    def _compile_together(self, sides: Sequence[tuple[int, CandidateProcess]], arena: Arena) -> None:
        for side, process in sides:
            with blame(side):
                process.begin_compile(arena, side)
        for side, process in sides:
            with blame(side):
                process.finish_compile()
                process.forget(arena)

    def seal(self, sides: Iterable[tuple[int, CandidateProcess]]) -> None:
        """End the preparation of every process."""
        for side, process in sides:
            with blame(side):
                process.seal()

    def timed_problems(self) -> list[str]:
        """Every problem of the suites that a verdict hangs on, once."""
        suites = (self.case.suites[name] for name in self.case.judged_suites)
        return list(dict.fromkeys(name for suite in suites for name in suite.problems))

    def suite(self, name: str = "") -> Suite:
        """The suite of this name, or the objective's. Raises UsageError where there is none such."""
        known = self.case.suites
        if name and name not in known:
            raise UsageError(f"{self.case.name} has no suite {name!r}; it has {', '.join(known)}")
        return known[name or self.case.settings.objective.suite]

    def gated_problems(self) -> tuple[str, ...]:
        """Every problem of the contract; where kernels are interpreted, those that are small enough for it."""
        most = self.device.most_bytes
        contract = self.contract
        small = tuple(n for n, p in contract.problems.items() if contract.work(p).bytes <= most)
        if not small:
            file = self.case.contract_file
            raise CaseError(
                file,
                "Contract.problems",
                f"none moves {most} bytes or fewer",
                "add one: without a GPU only such are run",
            )
        return small

    def source(self, problem: str, distribution: str) -> Source:
        return Source(self.contract, problem, distribution, self.secret, self.device.torch_device)

    def terms(self, share: float = 1.0) -> Terms:
        """What every duel of this case is fought under, with segments of this share of the case's."""
        settings = self.case.settings
        segment = share * settings.duel.segment_ms / 1e3
        gate, cuda = settings.gate, settings.cuda
        budget = gate.error_budget
        return Terms(
            self.device, segment, budget, cuda.cache, self.secret, self.paces, self.fitted, self.batches
        )

    def duel(self, sides: Processes, suite: str, share: float = 1.0) -> Duel:
        return Duel(self.contract, self.case.suites[suite], sides, self.terms(share))

    def screening(self, sides: Processes, suite: str) -> Duel:
        """A duel in shorter segments on a GPU: a screening sees by events alone, which are precise."""
        return self.duel(sides, suite, SCREENING_SHARE if self.device.kind == "cuda" else 1.0)

    def clean_blocks(self, duel: Duel, count: int) -> Iterator[CleanBlock]:
        """`count` blocks of a duel, and why others were dropped before each."""
        self.stable.tend()
        return clean_blocks(self.device, duel.block, count)

    def measure(
        self, sides: Processes, stage: Stage, suite: str, blocks: int, *, is_controlled: bool = False
    ) -> Pair:
        """A few blocks of one suite on two loaded processes; then B alone, if the pair is controlled."""
        with (self.screening if stage == "screen" else self.duel)(sides, suite) as duel:
            duel.take_up()
            taken = list(self.clean_blocks(duel, blocks))
            control = duel.opponent_alone(CONTROL_SEGMENTS) if is_controlled else ()
        return pair_of(stage, suite, taken, control)

    def deciding_pair(
        self, sides: Processes, elsewhere: Iterable[str], *, is_controlled: bool = False
    ) -> list[Pair]:
        """The objective's suite in segments; where that shows a gain which single calls could show, call by call too.

        Then the guardrails' suites, and B alone if the pair is controlled. What is timed is checked on inputs of the
        distributions `elsewhere` as well.
        """
        settings, suite = self.case.settings, self.case.settings.objective.suite
        with self.duel(sides, suite) as duel:
            duel.take_up()
            taken = list(self.clean_blocks(duel, settings.duel.pair_blocks))
            decided = pair_of("decide", suite, taken)
            called = SOLO_BLOCKS if values_of([decided])[0] >= 0.75 * SHOWS_ALONE else 0
            alone: list[CleanBlock] = [(duel.solo_block(), []) for _ in range(called)]
            duel.check_elsewhere(elsewhere)
            guarded = [
                self.measure(sides, "guardrail", g.suite, GUARDRAIL_BLOCKS) for g in settings.guardrails
            ]
            if is_controlled:
                decided = decided.model_copy(update={"opponent_alone": duel.opponent_alone(CONTROL_SEGMENTS)})
            else:
                sides[0].expect_alone()
        singles = [pair_of("alone", suite, alone)] if alone else []
        return [decided, *singles, *guarded]

    def fresh_pairs(
        self,
        candidate: Side,
        opponent: Side,
        stage: Stage,
        watch: Watch,
        suite: str = "",
        *,
        is_controlled: bool = False,
    ) -> list[Pair]:
        """The pairs from which a speedup on one suite (the objective's) is reported; they decide nothing."""
        pairs: list[Pair] = []
        settings, problems = self.case.settings, self.suite(suite).problems if suite else ()
        wanted, blocks = settings.duel.report_pairs, settings.duel.pair_blocks
        timed = suite or settings.objective.suite
        from_source = stage == "report"
        with closing(
            self.each_pair(candidate, opponent, wanted, watch, from_source=from_source, problems=problems)
        ) as ready:
            for sides in ready:
                pairs.append(self.measure(sides, stage, timed, blocks, is_controlled=is_controlled))
                watch(Progress(stage=stage, done=len(pairs), of=wanted, speedup=speedup_of(values_of(pairs))))
        return pairs

    def check_contract(self) -> None:
        """Raises CaseError where the contract breaks a promise, or a suite names what it does not have."""
        check_contract(
            self.contract, self.case.contract_file, self.gated_problems(), self.device.torch_device
        )
        self.check_suites()

    def check_suites(self) -> None:
        """Raises CaseError where a suite names what the contract does not have."""
        for name, suite in self.case.suites.items():
            file = self.case.folder / "benchmarks" / f"{name}.yaml"
            for problem in suite.problems:
                _expect_among(file, "problems", problem, list(self.contract.problems))
            _expect_among(file, "distribution", suite.distribution, list(self.contract.distributions))


def pair_of(
    stage: Stage, suite: str, taken: Sequence[CleanBlock], opponent_alone: tuple[float, ...] = ()
) -> Pair:
    """Blocks, and those dropped before each, as one record; with B's times by itself, of a controlled pair."""
    drops = [causes for _, dropped in taken for causes in dropped]
    return Pair(
        stage=stage,
        suite=suite,
        blocks=tuple(block for block, _ in taken),
        dropped=len(drops),
        dropped_for=tuple(cause for causes in drops for cause in causes),
        opponent_alone=opponent_alone,
    )


def values_of(pairs: list[Pair]) -> list[float]:
    """Each pair's one value."""
    return [middle_log_ratio(pair) for pair in pairs]


def speedup_of(values: list[float]) -> float:
    """The geometric mean of log ratios, as a ratio."""
    return math.exp(statistics.fmean(values))


def seconds_per_call(pairs: list[Pair], letter: Letter) -> float:
    """One side's, geometric mean over all blocks."""
    logs = [math.log(seconds_of(block, letter)) for pair in pairs for block in pair.blocks]
    return math.exp(statistics.fmean(logs))


def _expect_among(file: Path, key: str, value: str, offered: list[str]) -> None:
    if value not in offered:
        choices = ", ".join(offered)
        raise CaseError(file, key, f"value {value!r} is not in contract.py", f"choose among {choices}")
