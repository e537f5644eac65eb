"""The two trials of a candidate: screening on one pair of processes, confirmation over fresh pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NoReturn

from hillclimb.harness.duel.duel import CleanBlock
from hillclimb.harness.duel.duel_factory import MIN_SOLO_LOG_RATIO, DuelFactory, Processes
from hillclimb.harness.duel.gated_problems import GatedProblems
from hillclimb.harness.duel.pairs import log_ratios, mean_speedup, pair_record, seconds_per_call
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.profile import vendor_tools
from hillclimb.harness.profile.launched_kernels import require_listed_kernels
from hillclimb.harness.records import (
    Estimate,
    GuardrailReport,
    Interval,
    Pair,
    Progress,
    Reason,
    Side,
    Watch,
)
from hillclimb.harness.statistics import evidence
from hillclimb.harness.statistics.readings import event_seconds, log_ratio, quantile_seconds, wall_seconds
from hillclimb.harness.wording import count

SCREEN_ALPHA = 0.1
"""Evidence at which the screening pair sends a candidate on; being wrong here costs time, not truth."""

MAX_PROBE_SLOWDOWN = 2.0
"""A candidate this many times slower than the incumbent in its first calls is not duelled."""

MIN_CLEAR_SLOWDOWN = 1.01
"""Times longer, at the least, that every segment of a candidate's took than any of its incumbent's, for it to be slower
without more ado; in two blocks, where the four of each would fall so by chance once in 70 times, were both as fast."""

MIN_CLEAR_SLOWDOWN_ONE_BLOCK = 1.05
"""The same in one block, by a device's own events, which scatter by a tenth of a percent. By the clock of a busy host
that would send honest winners home."""

GUARDRAIL_SCREEN_BLOCKS = 2
"""Blocks of each guardrail's suite in which a would-be win must not be plainly slower than the guardrail allows."""

MIN_SOLO_GAIN_SHARE = 0.25
"""Share of what is expected of single calls that is demanded of them: threads that sleep between calls cost an honest
kernel more when it is called alone."""

MAX_OPPONENT_LOG_GAIN = 0.0025
"""Log ratio by which an opponent may be faster once the candidate has ended; a quarter of the gain if that is more."""

SOLO_QUIET_QUANTILE = 0.1
"""Share of a pair's single calls, the fastest, whose slowest stands for it; there are more of them than of segments."""

LARGE_LOG_GAIN = math.log(1.5)
"""Gain of single calls from which the calmest of all pairs must show it, too. A busy machine only adds to a call, and
may add so much that the scatter of the pairs would let anything pass."""

SOLO_FALSE_ALARM_RATE = 0.05
"""Chance that single calls which show just that share scatter below it; honest ones show all of it."""

REPORT_ROUNDS = 3
"""Rounds of report pairs until the reported interval excludes 1 and every clock sees a gain; a win that three rounds
cannot show is none."""


@dataclass
class ScreeningTrial:
    """One pair. `run` returns when the candidate is worth confirming and raises CandidateFault when not."""

    duels: DuelFactory
    watch: Watch
    speedup: float | None = None
    pairs: tuple[Pair, ...] = ()

    def run(self, sides: Processes) -> None:
        """Whether the objective gains, and if so whether a guardrail forbids it beyond doubt."""
        self._screen_objective(sides)
        for guardrail in self.duels.case.settings.guardrails:
            pair = self.duels.measure_pair(sides, "screen", guardrail.suite, GUARDRAIL_SCREEN_BLOCKS)
            self.pairs += (pair,)
            if is_clearly_slower(pair, 1 + guardrail.max_slowdown):
                seen = f"{mean_speedup(log_ratios([pair])):.3f}x of the incumbent's speed, in every segment"
                raise CandidateFault(Reason.GUARDRAIL, f"suite {guardrail.suite} runs at {seen}")

    def _screen_objective(self, sides: Processes) -> None:
        """Blocks until the gain is likely or hopeless; at the cap, the best guess decides."""
        settings = self.duels.case.settings
        suite, minimum, most = (
            settings.objective.suite,
            settings.objective.minimum_effect,
            settings.duel.screen_blocks,
        )
        taken: list[CleanBlock] = []
        with self.duels.new_screening_duel(sides, suite) as duel:
            self.speedup = duel.size_segments()
            if self.speedup < 1 / MAX_PROBE_SLOWDOWN:
                detail = f"its first calls ran at {self.speedup:.3f}x the incumbent's speed"
                raise CandidateFault(Reason.SLOWER, detail)
            for block in self.duels.clean_blocks(duel, most):
                taken.append(block)
                self.pairs = (pair_record("screen", suite, taken),)
                values = [log_ratio(b) for b, _ in taken]
                self.speedup = mean_speedup(values)
                self.watch(Progress(stage="screen", done=len(values), of=most, speedup=self.speedup))
                if is_clearly_slower(self.pairs[0]):
                    blocks = f"{count(len(values), 'block')}"
                    raise CandidateFault(Reason.SLOWER, f"{self.speedup:.3f}x, in every segment of {blocks}")
                if evidence.proves_gain(values, minimum, SCREEN_ALPHA):
                    return
                if evidence.is_futile(values, minimum):
                    raise_rejection(values, minimum)
        if statistics.median(values) <= math.log1p(minimum):
            raise_rejection(values, minimum)


@dataclass
class ConfirmationTrial:
    """Fresh pairs. `run` returns when the win is proven and measured, and raises CandidateFault when it is not."""

    duels: DuelFactory
    alpha: float
    watch: Watch
    gated: GatedProblems | None = None
    """Those of the gate before the first pair."""
    e_value: float = 0.0
    speedup: Interval | None = None
    cumulative: Interval | None = None
    seconds_per_call: float | None = None
    guardrails: list[GuardrailReport] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    note: str = ""
    """What the sanitizers left to be said of a winner."""

    @property
    def decided(self) -> Estimate | None:
        """What the deciding pairs saw, as far as they were taken."""
        values = log_ratios(self._of("decide"))
        return deciding_estimate(values) if values else None

    @property
    def refuted(self) -> Interval | None:
        """What the report pairs saw where no speedup is reported of them."""
        values = log_ratios(self._of("report"))
        return evidence.interval(values) if len(values) > 1 and self.speedup is None else None

    def run(
        self, candidate: Side, incumbent: Side, baseline: Side, check: Callable[[CandidateProcess], None]
    ) -> None:
        """Blocks until it is decided; `check` is the gate, for the candidate's first process before it is timed."""
        self.duels.launcher.precompile(
            candidate
        )  # the report pairs will want kernels made from the source alone
        self.duels.launcher.precompile(incumbent)
        self._decide(candidate, incumbent, check)
        self.duels.clocks.require_agreement(self._of("decide"))
        self._require_gain_per_call()
        self._check_guardrails()
        notes = (
            require_listed_kernels(self.duels, candidate, incumbent, self.watch),
            vendor_tools.sanitize(self.duels, candidate, self.watch),
        )
        self.note = "; ".join(filter(None, notes))
        self._measure_speedups(candidate, incumbent, baseline)

    def _decide(self, candidate: Side, incumbent: Side, check: Callable[[CandidateProcess], None]) -> None:
        """One value a pair, looked at after every one."""
        settings = self.duels.case.settings
        minimum, most = settings.objective.minimum_effect, settings.duel.max_pairs
        self.watch(Progress(stage="prepare"))
        likely = evidence.fewest_values(self.alpha)
        pairs = self.duels.prepared_pairs(
            candidate, incumbent, most, self.watch, gated=self.gated, expected_pairs=likely
        )
        with closing(pairs) as ready:
            for done, sides in enumerate(ready, start=1):
                if done == 1:
                    check(sides[0])
                self.pairs += self.duels.measure_deciding_pair(
                    sides, self._elsewhere(done), is_controlled=self._is_controlled(done)
                )
                values = log_ratios(self._of("decide"))
                self.e_value = evidence.e_value(values, math.log1p(minimum))
                self.watch(Progress(stage="decide", done=done, of=most, speedup=mean_speedup(values)))
                if evidence.proves_gain(values, minimum, self.alpha):
                    return
                if evidence.is_futile(values, minimum):
                    break
        raise_rejection(values, minimum)

    def _elsewhere(self, pair: int) -> list[str]:
        """Distributions besides the timed one: all of them in the first pair, one at random in the later ones."""
        settings, contract = self.duels.case.settings, self.duels.contract
        timed = self.duels.case.suites[settings.objective.suite].distribution
        others = [name for name in contract.distributions if name != timed]
        return others if pair == 1 else self.duels.secret.sample(others, min(1, len(others)))

    def _is_controlled(self, pair: int) -> bool:
        """Whether the opponent is timed by itself after a pair: on a GPU the first one, and half of the others."""
        return self.duels.device.kind == "cuda" and (pair == 1 or self.duels.secret.random() < 0.5)

    def _check_guardrails(self) -> None:
        """Every guardrail's suite must be proven not to be slower than its bound allows."""
        for guardrail in self.duels.case.settings.guardrails:
            pairs = [pair for pair in self._of("guardrail") if pair.suite == guardrail.suite]
            self.duels.clocks.require_agreement(pairs)
            speedup = evidence.interval(log_ratios(pairs))
            passed = speedup.low >= 1 / (1 + guardrail.max_slowdown)
            self.guardrails.append(
                GuardrailReport(
                    suite=guardrail.suite, speedup=speedup, max_slowdown=guardrail.max_slowdown, passed=passed
                )
            )
            if not passed:
                detail = f"suite {guardrail.suite} runs at {speedup} of the incumbent's speed"
                raise CandidateFault(Reason.GUARDRAIL, detail)

    def _measure_speedups(self, candidate: Side, incumbent: Side, baseline: Side) -> None:
        """The speedups to report, from pairs that decided nothing; one that they do not bear out is no win."""
        pairs: list[Pair] = []
        is_suspect = is_opponent_slowed(self._of("decide"))
        for _ in range(REPORT_ROUNDS):
            pairs += self.duels.measure_fresh_pairs(
                candidate, incumbent, "report", self.watch, is_controlled=is_suspect
            )
            speedup, measured = evidence.interval(log_ratios(pairs)), self._of("decide") + pairs
            if speedup.low > 1 and self.duels.clocks.shows_gain(measured, REPORT_ROUNDS):
                break
        self.pairs += pairs
        self.duels.clocks.require_agreement(measured)
        require_undisturbed_opponent(pairs)
        self.duels.clocks.require_gain(measured, REPORT_ROUNDS)
        self._require_mean_gain()
        if speedup.low <= 1:
            detail = (
                f"decided for it at an e-value of {self.e_value:.3g}, but measured afresh it is {speedup}"
            )
            raise CandidateFault(Reason.NO_PROVEN_GAIN, detail)
        self.speedup = self.cumulative = speedup
        self.seconds_per_call = seconds_per_call(pairs, "A")
        if baseline != incumbent:
            pairs = self.duels.measure_fresh_pairs(candidate, baseline, "cumulative", self.watch)
            self.pairs += pairs
            self.duels.clocks.require_agreement(pairs)
            self.cumulative = evidence.interval(log_ratios(pairs))

    def _require_gain_per_call(self) -> None:
        """A gain that segments show must show in single calls too, or it comes from working ahead between calls.

        A single call carries the cost of waking and stopping a process, reckoned from the incumbent's; where that
        hides the gain, nothing can be said. Calm calls are compared with calm segments: on a busy machine long ones
        are disturbed more than single calls, and that cost would seem to be none. On a GPU both by the side's own
        events and by the judge's clock, which sees less and cannot be lied to.
        """
        segments, alone = self._of("decide"), self._of("alone")
        if len(alone) < 2:
            return
        ours, theirs = (
            min(quantile_seconds(pair, side, quantile=0.0) for pair in segments) for side in ("A", "B")
        )
        for clock, name in ((event_seconds, ""), (wall_seconds, " by the judge's clock")):
            calm = [
                (
                    quantile_seconds(pair, "A", clock, SOLO_QUIET_QUANTILE),
                    quantile_seconds(pair, "B", clock, SOLO_QUIET_QUANTILE),
                )
                for pair in alone
            ]
            least_a, least_b = (min(seconds) for seconds in zip(*calm, strict=True))
            overhead = max(0.0, least_b - theirs)
            expected = math.log((theirs + overhead) / (ours + overhead))
            shown = [math.log(b / a) for a, b in calm]
            highest = evidence.upper_bound(shown, SOLO_FALSE_ALARM_RATE)
            if expected >= LARGE_LOG_GAIN:
                highest = min(highest, math.log(least_b / least_a))
            if expected >= MIN_SOLO_LOG_RATIO and highest < expected * MIN_SOLO_GAIN_SHARE:
                detail = (
                    f"{mean_speedup(log_ratios(segments)):.3f}x in segments of many calls, "
                    f"but {mean_speedup(shown):.3f}x "
                    f"where each call is timed alone{name} and {math.exp(expected):.3f}x was to be expected"
                )
                raise CandidateFault(Reason.NOT_PER_CALL, detail)

    def _require_mean_gain(self) -> None:
        """What the medians forgive, now and then a slow block, must not be what the gain was bought with."""
        pairs = self._of("decide") + self._of("report")
        mean = statistics.fmean(log_ratio(block) for pair in pairs for block in pair.blocks)
        if mean <= 0:
            detail = f"its typical block is faster, but all blocks together run at {math.exp(mean):.3f}x"
            raise CandidateFault(Reason.NO_PROVEN_GAIN, detail)

    def _of(self, stage: str) -> list[Pair]:
        return [pair for pair in self.pairs if pair.stage == stage]


def require_undisturbed_opponent(pairs: Sequence[Pair]) -> None:
    """What the candidate leaves running, heats or rewrites may slow its opponent, on every clock there is.

    So the opponent of some deciding pairs is timed once more when the candidate has ended. Where it is faster by
    itself, as it may be once by chance, that of every report pair is, and must not be: a candidate that behaves there
    shows no gain there either, and those pairs have to show it.
    """
    if is_opponent_slowed(pairs):
        gained = math.exp(opponent_log_gain_alone([pair for pair in pairs if pair.opponent_alone]))
        detail = f"the incumbent runs at {gained:.4f}x the speed once the candidate has ended"
        raise CandidateFault(Reason.LEFT_WORK_RUNNING, detail)


def is_opponent_slowed(pairs: Sequence[Pair]) -> bool:
    """Whether these opponents were faster by themselves than beside the candidate, by more than is allowed."""
    controlled = [pair for pair in pairs if pair.opponent_alone]
    if not controlled:
        return False
    return opponent_log_gain_alone(controlled) > max(
        MAX_OPPONENT_LOG_GAIN, statistics.fmean(log_ratios(controlled)) / 4
    )


def opponent_log_gain_alone(pairs: Sequence[Pair]) -> float:
    """Log ratio by which the opponents of controlled pairs were faster by themselves, in the mean."""
    return statistics.fmean(
        math.log(seconds_per_call([pair], "B")) - statistics.fmean(map(math.log, pair.opponent_alone))
        for pair in pairs
    )


def is_clearly_slower(pair: Pair, bound: float = 1.0) -> bool:
    """Whether A's fastest segment took over `bound` times as long as B's slowest, and by how much is beyond doubt."""
    fastest, slowest = quantile_seconds(pair, "A", quantile=0.0), quantile_seconds(pair, "B", quantile=1.0)
    if len(pair.blocks) > 1:
        return fastest > bound * MIN_CLEAR_SLOWDOWN * slowest
    return pair.blocks[0].events is not None and fastest > bound * MIN_CLEAR_SLOWDOWN_ONE_BLOCK * slowest


def deciding_estimate(values: list[float]) -> Estimate:
    """The mean of the deciding pairs' log ratios as a speedup; one value has no interval."""
    interval = evidence.interval(values) if len(values) > 1 else None
    return Estimate(stage="decide", speedup=mean_speedup(values), interval=interval)


def raise_rejection(values: list[float], minimum: float) -> NoReturn:
    """Raise CandidateFault with the name of what the values did not prove."""
    seen = f"{mean_speedup(values):.3f}x over {count(len(values), 'value')}"
    if evidence.is_slower(values):
        raise CandidateFault(Reason.SLOWER, seen)
    raise CandidateFault(Reason.NO_PROVEN_GAIN, f"{seen} does not prove a gain above {minimum:.2%}")
