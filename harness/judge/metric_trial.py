"""The trials of a candidate whose surface gives metrics: screening on one pair, confirmation over fresh pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from hillclimb.harness.case.settings import Guardrail, Settings
from hillclimb.harness.duel.pairs import PairStage, mean_speedup
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.judge.trial import (
    GUARDRAIL_SCREEN_BLOCKS,
    REPORT_ROUNDS,
    SCREEN_ALPHA,
    deciding_estimate,
    raise_rejection,
)
from hillclimb.harness.records import (
    Block,
    Estimate,
    GuardrailReport,
    Interval,
    MetricReport,
    Pair,
    Progress,
    Reason,
    Side,
    Watch,
)
from hillclimb.harness.statistics import evidence
from hillclimb.harness.surfaces.gains import log_gain, median_log_gain, report_metrics
from hillclimb.harness.surfaces.surface import OpenPair, Surface

GUARDRAIL_SCREEN_RISK = 0.05
"""Chance that a screening takes a guardrail that holds for one that is broken."""


@dataclass
class MetricTrial:
    """One candidate's trials; each method raises CandidateFault where the candidate does not pass it."""

    surface: Surface
    settings: Settings
    watch: Watch
    pairs: list[Pair] = field(default_factory=list)
    e_value: float = 0.0
    screened: float | None = None
    speedup: Interval | None = None
    cumulative: Interval | None = None
    guardrails: list[GuardrailReport] = field(default_factory=list)

    @property
    def decided(self) -> Estimate | None:
        """What the deciding pairs saw, as far as they were taken."""
        values = self._values(self._of("decide"))
        return deciding_estimate(values) if values else None

    @property
    def refuted(self) -> Interval | None:
        """What the report pairs saw where no speedup is reported of them."""
        values = self._values(self._of("report"))
        return evidence.interval(values) if len(values) > 1 and self.speedup is None else None

    @property
    def metrics(self) -> tuple[MetricReport, ...]:
        """Of the report pairs, and of the guardrails' suites."""
        measured = [*self._of("report"), *self._of("guardrail")]
        return tuple(report_metrics(measured, self.surface.metrics))

    def screen(self, candidate: Side, incumbent: Side) -> None:
        """Whether the objective gains, and if so whether a guardrail forbids it beyond doubt."""
        with self.surface.open_pair(candidate, incumbent) as sides:
            blocks = self._screen_objective(sides)
            for guardrail in self.settings.guardrails:
                self._screen_guardrail(sides, guardrail, blocks)

    def decide(self, candidate: Side, incumbent: Side, alpha: float) -> None:
        """Fresh pairs until it is proven; whatever else ends them is a rejection."""
        minimum, most = self.settings.objective.minimum_effect, self.settings.duel.max_pairs
        for done in range(1, most + 1):
            self._take_deciding_pair(candidate, incumbent)
            values = self._values(self._of("decide"))
            self.e_value = evidence.e_value(values, math.log1p(minimum))
            self.watch(Progress(stage="decide", done=done, of=most, speedup=mean_speedup(values)))
            if evidence.proves_gain(values, minimum, alpha):
                return
            if evidence.is_futile(values, minimum):
                break
        raise_rejection(values, minimum)

    def check_guardrails(self) -> None:
        """Every guardrail must be proven to hold."""
        for guardrail in self.settings.guardrails:
            name = self._metric_of(guardrail)
            pairs = [pair for pair in self.pairs if pair.suite == guardrail.suite]
            pairs = [pair for pair in pairs if pair.stage in ("decide", "guardrail")]
            gain = evidence.interval([median_log_gain(p, name, self.surface.metrics[name]) for p in pairs])
            passed = math.log(gain.low) >= _floor(guardrail)
            report = GuardrailReport(
                suite=guardrail.suite,
                metric=guardrail.metric,
                speedup=gain,
                max_slowdown=guardrail.max_slowdown,
                passed=passed,
            )
            self.guardrails.append(report)
            if not passed:
                raise CandidateFault(Reason.GUARDRAIL, _told(guardrail, name, str(gain)))

    def report(self, candidate: Side, incumbent: Side, baseline: Side) -> None:
        """The gains to report, from pairs that decided nothing; one that they do not bear out is no win."""
        for _ in range(REPORT_ROUNDS):
            self.measure(candidate, incumbent, "report")
            speedup = evidence.interval(self._values(self._of("report")))
            if speedup.low > 1:
                break
        self._require_mean_gain()
        if speedup.low <= 1:
            told = f"decided for it at an e-value of {self.e_value:.3g}, but measured afresh it is {speedup}"
            raise CandidateFault(Reason.NO_PROVEN_GAIN, told)
        self.speedup = self.cumulative = speedup
        if baseline != incumbent:
            self.measure(candidate, baseline, "cumulative")
            self.cumulative = evidence.interval(self._values(self._of("cumulative")))

    def measure(self, candidate: Side, opponent: Side, stage: PairStage, suite: str = "") -> list[Pair]:
        """Fresh pairs on one suite (the objective's), so many as are reported of; added to `pairs`."""
        wanted, timed = self.settings.duel.report_pairs, suite or self.settings.objective.suite
        taken: list[Pair] = []
        for _ in range(wanted):
            with self.surface.open_pair(candidate, opponent) as sides:
                taken.append(self._pair(sides, stage, timed))
            speedup = mean_speedup(self._values(taken))
            self.watch(Progress(stage=stage, done=len(taken), of=wanted, speedup=speedup))
        self.pairs += taken
        return taken

    def _screen_objective(self, sides: OpenPair) -> list[Block]:
        objective, most = self.settings.objective, self.settings.duel.screen_blocks
        blocks: list[Block] = []
        at = len(self.pairs)
        while len(blocks) < most:
            blocks.append(sides.time_block(objective.suite))
            self.pairs[at:] = [Pair(stage="screen", suite=objective.suite, blocks=tuple(blocks))]
            values = [self._gain(block) for block in blocks]
            self.screened = mean_speedup(values)
            self.watch(Progress(stage="screen", done=len(blocks), of=most, speedup=self.screened))
            if evidence.proves_gain(values, objective.minimum_effect, SCREEN_ALPHA):
                return blocks
            if evidence.is_futile(values, objective.minimum_effect):
                raise_rejection(values, objective.minimum_effect)
        if statistics.median(values) <= math.log1p(objective.minimum_effect):
            raise_rejection(values, objective.minimum_effect)
        return blocks

    def _screen_guardrail(self, sides: OpenPair, guardrail: Guardrail, objective_blocks: list[Block]) -> None:
        blocks = objective_blocks
        if guardrail.suite != self.settings.objective.suite:
            blocks = [sides.time_block(guardrail.suite) for _ in range(GUARDRAIL_SCREEN_BLOCKS)]
            self.pairs.append(Pair(stage="screen", suite=guardrail.suite, blocks=tuple(blocks)))
        name = self._metric_of(guardrail)
        values = [log_gain(block, name, self.surface.metrics[name]) for block in blocks]
        if len(values) < 2 or evidence.upper_bound(values, GUARDRAIL_SCREEN_RISK) >= _floor(guardrail):
            return
        raise CandidateFault(Reason.GUARDRAIL, _told(guardrail, name, f"{mean_speedup(values):.3f}x"))

    def _take_deciding_pair(self, candidate: Side, incumbent: Side) -> None:
        """The objective's suite, and every other suite that a guardrail is about, on one fresh pair."""
        objective = self.settings.objective.suite
        others = dict.fromkeys(g.suite for g in self.settings.guardrails if g.suite != objective)
        with self.surface.open_pair(candidate, incumbent) as sides:
            self.pairs.append(self._pair(sides, "decide", objective))
            self.pairs += [self._pair(sides, "guardrail", suite) for suite in others]

    def _require_mean_gain(self) -> None:
        """What medians forgive, now and then a slow block, must not be what the gain was bought with."""
        pairs = [*self._of("decide"), *self._of("report")]
        mean = statistics.fmean(self._gain(block) for pair in pairs for block in pair.blocks)
        if mean <= 0:
            told = f"its typical block is better, but all blocks together are at {math.exp(mean):.3f}x"
            raise CandidateFault(Reason.NO_PROVEN_GAIN, told)

    def _pair(self, sides: OpenPair, stage: PairStage, suite: str) -> Pair:
        blocks = tuple(sides.time_block(suite) for _ in range(self.surface.pair_blocks))
        return Pair(stage=stage, suite=suite, blocks=blocks)

    def _metric_of(self, guardrail: Guardrail) -> str:
        return guardrail.metric or self.settings.objective.metric

    def _gain(self, block: Block) -> float:
        name = self.settings.objective.metric
        return log_gain(block, name, self.surface.metrics[name])

    def _values(self, pairs: Sequence[Pair]) -> list[float]:
        """Each pair's one value of the objective's metric."""
        name = self.settings.objective.metric
        return [median_log_gain(pair, name, self.surface.metrics[name]) for pair in pairs]

    def _of(self, stage: str) -> list[Pair]:
        return [pair for pair in self.pairs if pair.stage == stage]


def _floor(guardrail: Guardrail) -> float:
    """The log gain below which it is broken."""
    return -math.log1p(guardrail.max_slowdown)


def _told(guardrail: Guardrail, name: str, seen: str) -> str:
    return f"suite {guardrail.suite}: {name} is {seen} as good as the incumbent's"
