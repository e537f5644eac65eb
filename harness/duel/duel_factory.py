"""The bench of one case: every candidate process, pair and duel is set up here."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import check_contract
from hillclimb.harness.case.contract import Contract
from hillclimb.harness.case.settings import Suite
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.batches import InputBatches
from hillclimb.harness.duel.duel import PASSED_BUDGETS, CleanBlock, InterleavedDuel, attribute_faults
from hillclimb.harness.duel.gated_problems import NEIGHBOURS, GatedProblems, draw_gated_problems
from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.duel.pairs import (
    COMPARISONS,
    PairStage,
    clean_blocks,
    log_ratios,
    mean_speedup,
    pair_record,
    until_settled,
)
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launcher import CandidateLauncher
from hillclimb.harness.duel.process.parameters import drawn_parameters, pairs_with_room
from hillclimb.harness.duel.workload import DuelSettings
from hillclimb.harness.errors import CaseError, UsageError
from hillclimb.harness.records import Pair, Progress, Side, Watch
from hillclimb.harness.statistics.clocks import ClockCalibration
from hillclimb.harness.wording import choices, suggestion

Processes = tuple[CandidateProcess, CandidateProcess]
"""A, the candidate, and B, its opponent."""

MAX_PAIRS = 6
"""Fresh pairs that are got ready at the same time on a GPU."""

EXTRA_READY_PAIRS = 2
"""Of those that are wanted besides the likely ones."""

SOLO_BLOCKS = 8
"""Blocks of single calls in a deciding pair."""

MIN_SOLO_LOG_RATIO = 0.02
"""Log ratio that single calls must be able to show before anything is demanded of them."""

GUARDRAIL_BLOCKS = 1
"""Blocks of each guardrail suite in every deciding pair; it is the pairs that count."""

SCREENING_SHARE = 0.5
"""Length of a screening's segments on a GPU, as a share of the case's."""

SCREENED_MIXED = 2
"""Most slots of a screening's segment whose inputs are mixed."""

CONTROL_SEGMENTS = 4
"""Segments of the opponent by itself, at the end of a controlled pair."""


@dataclass(frozen=True)
class DuelFactory:
    """Raises CandidateFault for what A does, MachineError for what anything else does."""

    case: Case
    contract: Contract
    launcher: CandidateLauncher
    device: Device
    secret: random.Random
    clocks: ClockCalibration = field(default_factory=ClockCalibration)
    opponent_seconds: dict[str, float] = field(default_factory=dict)
    """As DuelSettings.opponent_seconds; they last as long as the judge."""
    segment_calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    """As DuelSettings.segment_calls; of the two sides whose processes were born last."""
    batches: InputBatches = field(default_factory=InputBatches)
    ending: list[CandidateProcess] = field(default_factory=list)
    """Told to end, and not waited for yet."""

    @contextmanager
    def spawn_pair(self, candidate: Side, opponent: Side) -> Iterator[Processes]:
        """Two fresh processes importing at the same time; the opponent is loaded."""
        self.segment_calls.clear()
        with ExitStack() as stack:
            yield self._spawn_pairs(stack, candidate, opponent, 1)[0]

    def prepared_pairs(
        self,
        candidate: Side,
        opponent: Side,
        most: int,
        watch: Watch,
        *,
        from_source: bool = False,
        problems: Sequence[str] = (),
        gated: GatedProblems | None = None,
        expected_pairs: int = 0,
    ) -> Generator[Processes, None, None]:
        """Up to `most` fresh pairs, one at a time, with `problems` compiled on both; every timed one unless told.

        The first candidate's process has the problems of its gate compiled too, if it is `gated`.
        On a GPU some are got ready together, since nothing that touches it may start beside a measurement; until it is
        their turn they are frozen. First the `expected_pairs`, all unless told, then a few at a time.
        Close the iterator to end those that are left.
        """
        self.segment_calls.clear()
        done = 0
        while done < most:
            together = EXTRA_READY_PAIRS if done else min(expected_pairs or most, MAX_PAIRS)
            room = pairs_with_room(self.launcher.parameters, together, self.device.free_bytes)
            count = min(room if self.device.kind == "cuda" else 1, most - done)
            with ExitStack() as stack:
                born = self._spawn_pairs(stack, candidate, opponent, count, from_source=from_source)
                self.prepare_pairs(born, watch, problems, None if done else gated)
                yield from born
            done += count

    def _spawn_pairs(
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
            drawn = drawn_parameters(self.contract, self.device.torch_device, self.secret)
            parameters = stack.enter_context(drawn)
            for side in self.secret.sample((0, 1), 2):
                with attribute_faults(side):
                    tree = (candidate, opponent)[side]
                    born[side] = self.launcher.launch(tree, parameters=parameters, from_source=from_source)
                stack.callback(self._release, born[side])
            pairs.append((born[0], born[1]))
        try:
            for _, process in pairs:
                with attribute_faults(1):
                    process.await_loaded()
        finally:
            self.reap()
        return pairs

    def _release(self, process: CandidateProcess) -> None:
        if not process.is_closed:
            self.ending.append(process)
            process.end()

    def reap(self) -> None:
        """Wait for whatever was sent off, for all of it whatever one of them does."""
        with ExitStack() as stack:
            while self.ending:
                stack.callback(self.ending.pop().close)

    def prepare_pairs(
        self,
        born: Sequence[Processes],
        watch: Watch,
        problems: Sequence[str] = (),
        gated: GatedProblems | None = None,
    ) -> None:
        """Load the candidates, compile `problems` (every timed one) on all, the gate's on the first; then seal."""
        sides = [(side, process) for pair in born for side, process in enumerate(pair)]
        for process, _ in born:
            process.await_loaded()
        for side, process in sides:  # one after another: what a kernel is made of may be chosen by timing
            with attribute_faults(side):
                process.take_parameters()
        self.compile(sides, problems or self.timed_problems(), watch)
        if gated is not None:
            self.compile_gated(sides[0][1], gated, watch, done=self.timed_problems())
        self.seal(sides)

    def compile_gated(
        self, candidate: CandidateProcess, gated: GatedProblems, watch: Watch, done: Sequence[str] = ()
    ) -> None:
        """The first call on every problem of its gate but those that are `done`."""
        left = [name for name in (*gated.listed, *gated.neighbours) if name not in done]
        self.compile([(0, candidate)], left, watch, gated.contract)

    def compile(
        self,
        sides: Sequence[tuple[int, CandidateProcess]],
        problems: Sequence[str],
        watch: Watch,
        contract: Contract | None = None,
    ) -> None:
        """The first call on every problem, which may compile, of many at the same time; 0 is the candidate's side.

        Each is told, since it may take its time. Nothing is timed yet, and nothing is looked at. A side that tunes
        itself in its first call has the device alone.
        """
        alone = [[one] for one in sides if one[1].has_autotuner]
        together = [one for one in sides if not one[1].has_autotuner]
        for done, problem in enumerate(problems):
            watch(Progress(stage="prepare", done=done, of=len(problems)))
            source = self.source(problem, self.contract.distributions[0], contract)
            # nobody else may change what a call changes in place
            slots = len(sides) if source.layout(1).changed else 2
            with source.arena(slots) as arena:
                for group in (together, *alone):
                    source.refresh(arena, range(slots))
                    self._compile_together(group, arena)

    def _compile_together(self, sides: Sequence[tuple[int, CandidateProcess]], arena: Arena) -> None:
        for place, (side, process) in enumerate(sides):
            with attribute_faults(side):
                process.begin_compile(arena, place if arena.layout.changed else side)
        for side, process in sides:
            with attribute_faults(side):
                process.finish_compile()
                process.unmap(arena)

    def seal(self, sides: Iterable[tuple[int, CandidateProcess]]) -> None:
        """End the preparation of every process."""
        for side, process in sides:
            with attribute_faults(side):
                process.seal()

    def timed_problems(self) -> list[str]:
        """Every problem of the suites that a verdict hangs on, once."""
        suites = (self.case.suites[name] for name in self.case.judged_suites)
        return list(dict.fromkeys(name for suite in suites for name in suite.problems))

    def suite(self, name: str = "") -> Suite:
        """The suite of this name, or the objective's. Raises UsageError where there is none such."""
        known = self.case.suites
        if name and name not in known:
            raise UsageError(f"{self.case.name} has no suite {name!r}; it has {choices(name, known)}")
        return known[name or self.case.settings.objective.suite]

    def gated_problems(self) -> tuple[str, ...]:
        """Every problem of the contract; where kernels are interpreted, those that are small enough for it."""
        most, contract = self.device.max_problem_bytes, self.contract
        small = tuple(n for n, p in contract.problems.items() if contract.work(p).bytes <= most)
        if not small:
            raise CaseError(
                self.case.contract_file,
                "Contract.problems",
                f"none moves {most} bytes or fewer",
                "add one: without a GPU only such are run",
            )
        return small

    def draw_gated_problems(self, neighbours: int = NEIGHBOURS) -> GatedProblems:
        """Those of one gate, with so many neighbours that are drawn for it."""
        most = self.device.max_problem_bytes
        return draw_gated_problems(self.contract, self.gated_problems(), self.secret, most, neighbours)

    def source(self, problem: str, distribution: str, contract: Contract | None = None) -> InputSource:
        """A problem of the case's contract, or of one that knows more."""
        place = self.device.torch_device
        return InputSource(contract or self.contract, problem, distribution, self.secret, place)

    def duel_settings(self, share: float = 1.0) -> DuelSettings:
        """What every duel of this case is fought under, with segments of this share of the case's."""
        settings = self.case.settings
        segment = share * settings.duel.segment_ms / 1e3
        return DuelSettings(
            self.device,
            segment,
            settings.gate.error_budget,
            settings.cuda.cache,
            self.secret,
            self.opponent_seconds,
            self.segment_calls,
            self.batches,
        )

    def new_duel(self, sides: Processes, suite: str) -> InterleavedDuel:
        return InterleavedDuel(self.contract, self.case.suites[suite], sides, self.duel_settings())

    def new_comparison(self, sides: Processes, suite: str) -> InterleavedDuel:
        """A duel of two sides that have passed before."""
        both = (PASSED_BUDGETS, PASSED_BUDGETS)
        return InterleavedDuel(self.contract, self.case.suites[suite], sides, self.duel_settings(), both)

    def new_screening_duel(self, sides: Processes, suite: str) -> InterleavedDuel:
        """A duel in shorter segments on a GPU, since a screening sees by events alone, which are precise.

        Few inputs are mixed, which takes time: what it sends on is duelled again.
        """
        settings = self.duel_settings(SCREENING_SHARE if self.device.kind == "cuda" else 1.0)
        settings = replace(settings, most_mixed=SCREENED_MIXED)
        return InterleavedDuel(self.contract, self.case.suites[suite], sides, settings)

    def clean_blocks(self, duel: InterleavedDuel, count: int) -> Iterator[CleanBlock]:
        """`count` blocks of a duel, and why others were dropped before each."""
        self.launcher.poll_precompiles()
        return clean_blocks(self.device, duel.time_block, count)

    def settled_blocks(self, duel: InterleavedDuel) -> list[CleanBlock]:
        """The case's number of blocks, and as many again for as long as they scatter too much."""
        settings = self.case.settings
        return until_settled(
            lambda: self.clean_blocks(duel, settings.duel.pair_blocks), settings.objective.minimum_effect
        )

    def measure_pair(
        self, sides: Processes, stage: PairStage, suite: str, blocks: int = 0, *, is_controlled: bool = False
    ) -> Pair:
        """So many blocks of one suite on two loaded processes, `settled_blocks` unless told; then B alone, if asked."""
        makers = {"screen": self.new_screening_duel, **dict.fromkeys(COMPARISONS, self.new_comparison)}
        with makers.get(stage, self.new_duel)(sides, suite) as duel:
            duel.prepare_segments()
            taken = list(self.clean_blocks(duel, blocks)) if blocks else self.settled_blocks(duel)
            control = duel.time_opponent_alone(CONTROL_SEGMENTS) if is_controlled else ()
        return pair_record(stage, suite, taken, control)

    def measure_deciding_pair(
        self, sides: Processes, distributions: Iterable[str], *, is_controlled: bool = False
    ) -> list[Pair]:
        """The objective's suite in segments; where that shows a gain which single calls could show, call by call too.

        Then the guardrails' suites, and B alone if the pair is controlled. What is timed is checked on inputs of the
        other `distributions` as well.
        """
        settings, suite = self.case.settings, self.case.settings.objective.suite
        with self.new_duel(sides, suite) as duel:
            duel.prepare_segments()
            decided = pair_record("decide", suite, self.settled_blocks(duel))
            called = SOLO_BLOCKS if log_ratios([decided])[0] >= 0.75 * MIN_SOLO_LOG_RATIO else 0
            alone: list[CleanBlock] = [(duel.time_solo_block(), []) for _ in range(called)]
            duel.check_distributions(distributions)
            guarded = [
                self.measure_pair(sides, "guardrail", g.suite, GUARDRAIL_BLOCKS) for g in settings.guardrails
            ]
            if is_controlled:
                decided = decided.model_copy(
                    update={"opponent_alone": duel.time_opponent_alone(CONTROL_SEGMENTS)}
                )
            else:
                sides[0].require_alone()
        singles = [pair_record("alone", suite, alone)] if alone else []
        return [decided, *singles, *guarded]

    def measure_fresh_pairs(
        self,
        candidate: Side,
        opponent: Side,
        stage: PairStage,
        watch: Watch,
        suite: str = "",
        *,
        is_controlled: bool = False,
    ) -> list[Pair]:
        """The pairs from which a speedup on one suite (the objective's) is reported; they decide nothing."""
        pairs: list[Pair] = []
        settings, problems = self.case.settings, self.suite(suite).problems if suite else ()
        wanted = settings.duel.report_pairs
        timed = suite or settings.objective.suite
        from_source = stage == "report"
        with closing(
            self.prepared_pairs(
                candidate, opponent, wanted, watch, from_source=from_source, problems=problems
            )
        ) as ready:
            for sides in ready:
                pairs.append(self.measure_pair(sides, stage, timed, is_controlled=is_controlled))
                watch(
                    Progress(stage=stage, done=len(pairs), of=wanted, speedup=mean_speedup(log_ratios(pairs)))
                )
        return pairs

    def check_contract(self) -> None:
        """Raises CaseError where the contract breaks a promise, or a suite names what it does not have."""
        gated, file = self.draw_gated_problems(), self.case.contract_file
        check_contract(gated.contract, file, (*gated.listed, *gated.neighbours), self.device.torch_device)
        self.check_suites()

    def check_suites(self) -> None:
        """Raises CaseError where a suite names what the contract does not have, or what cannot be timed."""
        for name, suite in self.case.suites.items():
            file = self.case.folder / "benchmarks" / f"{name}.yaml"
            for problem in suite.problems:
                _expect_among(file, "problems", problem, list(self.contract.problems))
                if self.contract.is_empty(self.contract.problems[problem]):
                    raise CaseError(
                        file,
                        "problems",
                        f"value {problem!r} has empty outputs alone, which take no time",
                        "take it out here; it is still checked",
                    )
            _expect_among(file, "distribution", suite.distribution, list(self.contract.distributions))


def _expect_among(file: Path, key: str, value: str, offered: list[str]) -> None:
    if value not in offered:
        raise CaseError(file, key, f"value {value!r} is not in contract.py", suggestion(value, offered))
