"""The judge of one case on one CPU: gate, screening, decision, measurement. Runs in a process of its own."""

from __future__ import annotations

import hashlib
import math
import random
import secrets
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.candidate.process import CandidateProcess, Limits
from harness.case.case import Case
from harness.case.contract import Contract, load_contract
from harness.case.digest import benchmarks_digest, contract_digest, harness_digest
from harness.device import cpu
from harness.errors import CandidateFault, CaseError, MachineError
from harness.judge import evidence
from harness.judge.duel import HOPELESS, Duel, blame, clean_blocks, log_ratio, seconds_of
from harness.judge.gate import Gate
from harness.judge.policy import check_policy
from harness.judge.protocol import Progress, Watch
from harness.records import (
    Block,
    Comparison,
    Confirmation,
    GateReport,
    GuardrailReport,
    Interval,
    Pair,
    Provenance,
    Reason,
    Screening,
    Side,
)
from harness.sandbox.rungs import Rung

SCREEN_ALPHA = 0.1
"""Evidence at which the screening pair sends a candidate on; being wrong here costs time, not truth."""

GUARDRAIL_BLOCKS = 1
"""Blocks of each guardrail suite in every deciding pair; their mean over the pairs is what counts."""

Stage = Literal["noise", "screen", "decide", "report", "cumulative", "guardrail"]


@dataclass
class CpuJudge:
    """Implements harness.judge.protocol.Judge in this process."""

    case: Case
    rung: Rung
    contract: Contract = field(init=False)

    def __post_init__(self) -> None:
        self.contract = load_contract(self.case.contract_file)
        self._check_suites()
        self._seed = secrets.token_bytes(32)
        self._secret = random.Random(self._seed)
        settings = self.case.settings
        self._gate = Gate(self.contract, settings.gate.seeds, settings.gate.error_budget, self._secret)
        budgets = settings.budgets
        self._limits = Limits(budgets.prepare_seconds, budgets.call_seconds, budgets.memory_mib << 20)

    def describe(self) -> Provenance:
        return Provenance(
            contract=contract_digest(self.case),
            benchmarks=benchmarks_digest(self.case),
            harness=harness_digest(),
            device=cpu.name(),
            device_id=cpu.identity(),
            sandbox=self.rung.name,
            software=cpu.software(),
            seed_commitment=hashlib.sha256(self._seed).hexdigest(),
        )

    def gate(self, side: Side, watch: Watch) -> GateReport:
        try:
            with self._process(side) as candidate:
                return self._gated(candidate, watch)
        except CandidateFault as fault:
            return GateReport(passed=False, reason=fault.reason, detail=fault.detail)

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        started = time.perf_counter()
        gate = GateReport(passed=False)
        values: list[float] = []
        pair: Pair | None = None
        try:
            with self._pair(candidate, incumbent) as sides:
                gate = self._gated(sides[0], watch)
                if gate.passed:
                    with self._duel(self._objective, sides) as duel:
                        reason, detail, values, pair = self._screen_pair(duel, watch)
                else:
                    reason, detail = gate.reason, gate.detail
        except CandidateFault as fault:
            reason, detail = fault.reason, fault.detail
        return Screening(
            gate=gate
            if gate.passed or gate.reason
            else gate.model_copy(update={"reason": reason, "detail": detail}),
            reason=reason,
            detail=detail,
            speedup=math.exp(statistics.fmean(values)) if values else None,
            pairs=(pair,) if pair else (),
            seconds=time.perf_counter() - started,
        )

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        started = time.perf_counter()
        gate = self.gate(candidate, watch)
        trial = _Trial(alpha)
        reason, detail = gate.reason, gate.detail
        if gate.passed:
            try:
                reason, detail = self._decide(trial, candidate, incumbent, watch)
                if reason is None:
                    self._measure(trial, candidate, incumbent, baseline, watch)
            except CandidateFault as fault:
                reason, detail = fault.reason, fault.detail
        return Confirmation(
            gate=gate,
            reason=reason,
            detail=detail,
            alpha=alpha,
            e_value=min(trial.e_value, 1e300),
            speedup=trial.speedup,
            cumulative=trial.cumulative,
            seconds_per_call=trial.seconds_per_call,
            guardrails=tuple(trial.guardrails),
            pairs=tuple(trial.pairs),
            seconds=time.perf_counter() - started,
        )

    def compare(
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch
    ) -> Comparison:
        started = time.perf_counter()
        try:
            values, pairs = self._fresh_pairs(last, first, stage, watch)
        except CandidateFault as fault:
            raise MachineError(f"a tree that was kept before failed while compared: {fault}") from fault
        return Comparison(
            speedup=evidence.interval(values),
            seconds_per_call=(_seconds(pairs, "B"), _seconds(pairs, "A")),
            pair_sd=statistics.stdev(values),
            pairs=tuple(pairs),
            seconds=time.perf_counter() - started,
        )

    def close(self) -> None:
        """Nothing outlives a method call."""

    # --- the stages -----------------------------------------------------------------------------

    def _gated(self, candidate: CandidateProcess, watch: Watch) -> GateReport:
        watch(Progress(stage="prepare"))
        candidate.await_loaded()
        return self._gate.check(candidate, watch)

    def _screen_pair(self, duel: Duel, watch: Watch) -> tuple[Reason | None, str, list[float], Pair | None]:
        minimum, most = self.case.settings.objective.minimum_effect, self.case.settings.duel.screen_blocks
        rough = duel.probe()
        if rough < 1 / HOPELESS:
            return (
                Reason.SLOWER,
                f"first calls ran at {rough:.3f}x the incumbent's speed",
                [math.log(rough)],
                None,
            )
        pair = _PairInProgress("screen", self.case.settings.objective.suite)
        for block, dropped in clean_blocks(duel.block, most):
            values = pair.add(block, dropped)
            watch(
                Progress(
                    stage="screen", done=len(values), of=most, speedup=math.exp(statistics.fmean(values))
                )
            )
            if evidence.proves_gain(values, minimum, SCREEN_ALPHA):
                return None, "", values, pair.done()
            if evidence.is_futile(values, minimum):
                break
        reason, detail = _name_rejection(values, minimum)
        return reason, detail, values, pair.done()

    def _decide(
        self, trial: _Trial, candidate: Side, incumbent: Side, watch: Watch
    ) -> tuple[Reason | None, str]:
        """Fresh pairs, one value each, until the gain is proven, hopeless or undecided at the cap."""
        minimum, most = self.case.settings.objective.minimum_effect, self.case.settings.duel.max_pairs
        blocks = self.case.settings.duel.pair_blocks
        guarded: dict[str, list[float]] = {g.suite: [] for g in self.case.settings.guardrails}
        values: list[float] = []
        for _ in range(most):
            with self._loaded_pair(candidate, incumbent) as sides:
                trial.pairs.append(self._pair_of(sides, "decide", self._objective, blocks))
                values.append(_value(trial.pairs[-1]))
                for suite, seen in guarded.items():
                    trial.pairs.append(self._pair_of(sides, "guardrail", suite, GUARDRAIL_BLOCKS))
                    seen.append(_value(trial.pairs[-1]))
            trial.e_value = evidence.e_value(values, math.log1p(minimum))
            watch(
                Progress(
                    stage="decide", done=len(values), of=most, speedup=math.exp(statistics.fmean(values))
                )
            )
            if evidence.proves_gain(values, minimum, trial.alpha):
                return self._guard(trial, guarded)
            if evidence.is_futile(values, minimum):
                break
        return _name_rejection(values, minimum)

    def _guard(self, trial: _Trial, guarded: dict[str, list[float]]) -> tuple[Reason | None, str]:
        """Every guardrail's suite must be proven not to be slower than its bound allows."""
        for guardrail in self.case.settings.guardrails:
            speedup = evidence.interval(guarded[guardrail.suite])
            passed = speedup.low >= 1 / (1 + guardrail.max_slowdown)
            report = GuardrailReport(
                suite=guardrail.suite, speedup=speedup, max_slowdown=guardrail.max_slowdown, passed=passed
            )
            trial.guardrails.append(report)
            if not passed:
                return Reason.GUARDRAIL, f"suite {guardrail.suite} runs at {speedup} of the incumbent's speed"
        return None, ""

    def _measure(self, trial: _Trial, candidate: Side, incumbent: Side, baseline: Side, watch: Watch) -> None:
        """The speedups to report, from pairs that decided nothing."""
        values, pairs = self._fresh_pairs(candidate, incumbent, "report", watch)
        trial.pairs += pairs
        trial.speedup = trial.cumulative = evidence.interval(values)
        trial.seconds_per_call = _seconds(pairs, "A")
        if baseline != incumbent:
            values, pairs = self._fresh_pairs(candidate, baseline, "cumulative", watch)
            trial.pairs += pairs
            trial.cumulative = evidence.interval(values)

    def _fresh_pairs(
        self, candidate: Side, opponent: Side, stage: Stage, watch: Watch
    ) -> tuple[list[float], list[Pair]]:
        pairs: list[Pair] = []
        most, blocks = self.case.settings.duel.report_pairs, self.case.settings.duel.pair_blocks
        for _ in range(most):
            with self._loaded_pair(candidate, opponent) as sides:
                pairs.append(self._pair_of(sides, stage, self._objective, blocks))
            mean = statistics.fmean(_value(p) for p in pairs)
            watch(Progress(stage=stage, done=len(pairs), of=most, speedup=math.exp(mean)))
        return [_value(p) for p in pairs], pairs

    def _pair_of(
        self, sides: tuple[CandidateProcess, CandidateProcess], stage: Stage, suite: str, blocks: int
    ) -> Pair:
        pair = _PairInProgress(stage, suite)
        with self._duel(suite, sides) as duel:
            duel.probe()
            for block, dropped in clean_blocks(duel.block, blocks):
                pair.add(block, dropped)
        return pair.done()

    # --- processes ------------------------------------------------------------------------------

    @property
    def _objective(self) -> str:
        return self.case.settings.objective.suite

    def _process(self, side: Side) -> CandidateProcess:
        check_policy(Path(side.tree), self.case.settings.policy)
        settings = self.case.settings
        preload = [m for m in settings.policy.imports if m in ("numpy", "numba", "yaml")]
        return CandidateProcess(self.rung, side, settings.entry, preload, self._limits)

    @contextmanager
    def _pair(self, candidate: Side, opponent: Side) -> Iterator[tuple[CandidateProcess, CandidateProcess]]:
        """Two processes importing at the same time, born in a coin's order; only the opponent is loaded."""
        with ExitStack() as stack:
            born: dict[int, CandidateProcess] = {}
            for side in self._secret.sample((0, 1), 2):
                with blame(side):
                    born[side] = stack.enter_context(self._process((candidate, opponent)[side]))
            with blame(1):
                born[1].await_loaded()
            yield born[0], born[1]

    @contextmanager
    def _loaded_pair(
        self, candidate: Side, opponent: Side
    ) -> Iterator[tuple[CandidateProcess, CandidateProcess]]:
        with self._pair(candidate, opponent) as sides:
            sides[0].await_loaded()
            yield sides

    def _duel(self, suite: str, sides: tuple[CandidateProcess, CandidateProcess]) -> Duel:
        settings = self.case.settings
        seconds, budget = settings.duel.segment_ms / 1e3, settings.gate.error_budget
        return Duel(self.contract, self.case.suites[suite], sides, seconds, budget, self._secret)

    def _check_suites(self) -> None:
        for name, suite in self.case.suites.items():
            file = self.case.folder / "benchmarks" / f"{name}.yaml"
            known = (
                ("problems", suite.problems, self.contract.problems),
                ("distribution", (suite.distribution,), self.contract.distributions),
            )
            for key, wanted, offered in known:
                for value in wanted:
                    if value not in offered:
                        raise CaseError(
                            file,
                            key,
                            f"value {value!r} is not in contract.py",
                            f"choose among {', '.join(offered)}",
                        )


@dataclass
class _Trial:
    """What a confirmation has gathered so far."""

    alpha: float
    e_value: float = 0.0
    speedup: Interval | None = None
    cumulative: Interval | None = None
    seconds_per_call: float | None = None
    guardrails: list[GuardrailReport] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)


@dataclass
class _PairInProgress:
    """Blocks of one pair as they come."""

    stage: Stage
    suite: str
    blocks: list[Block] = field(default_factory=list)
    dropped: int = 0

    def add(self, block: Block, dropped: int) -> list[float]:
        """All log ratios so far."""
        self.blocks.append(block)
        self.dropped += dropped
        return [log_ratio(b) for b in self.blocks]

    def done(self) -> Pair:
        return Pair(stage=self.stage, suite=self.suite, blocks=tuple(self.blocks), dropped=self.dropped)


def _value(pair: Pair) -> float:
    """The pair's one value: the mean log ratio of its blocks."""
    return statistics.fmean(log_ratio(block) for block in pair.blocks)


def _seconds(pairs: list[Pair], letter: Literal["A", "B"]) -> float:
    logs = [math.log(seconds_of(block, letter)) for pair in pairs for block in pair.blocks]
    return math.exp(statistics.fmean(logs))


def _name_rejection(values: list[float], minimum: float) -> tuple[Reason, str]:
    ratio = math.exp(statistics.fmean(values))
    if evidence.is_slower(values):
        return Reason.SLOWER, f"{ratio:.3f}x over {len(values)} values"
    return (
        Reason.NO_PROVEN_GAIN,
        f"{ratio:.3f}x over {len(values)} values does not prove a gain above {minimum:.2%}",
    )
