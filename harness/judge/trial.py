"""The two trials of a candidate: screening on one pair of processes, confirmation over fresh pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NoReturn

from harness.candidate.process import CandidateProcess
from harness.errors import CandidateFault
from harness.judge import evidence, tools
from harness.judge.bench import (
    SHOWS_ALONE,
    Bench,
    Processes,
    pair_of,
    seconds_per_call,
    speedup_of,
    values_of,
)
from harness.judge.duel import CleanBlock
from harness.judge.protocol import Progress, Watch
from harness.readings import calm_seconds, log_ratio, seen, told
from harness.records import GuardrailReport, Interval, Pair, Reason, Side

SCREEN_ALPHA = 0.1
"""Evidence at which the screening pair sends a candidate on; being wrong here costs time, not truth."""

HOPELESS = 2.0
"""A candidate this many times slower than the incumbent in its first calls is not duelled."""

PLAINLY = 1.01
"""Times longer, at the least, that every segment of a candidate's took than any of its incumbent's, for it to be slower
without more ado; in two blocks, where the four of each would fall so by chance once in 70 times, were both as fast."""

PLAINLY_AT_ONCE = 1.05
"""The same in one block, by a device's own events, which scatter by a tenth of a percent. By the clock of a busy host
that would send honest winners home."""

GLANCE_BLOCKS = 2
"""Blocks of each guardrail's suite in which a would-be win must not be plainly slower than the guardrail allows."""

SHOWN_ALONE = 0.25
"""Share of what is expected of single calls that is demanded of them: threads that sleep between calls cost an honest
kernel more when it is called alone."""

DISTURBED = 0.0025
"""Log ratio by which an opponent may be faster once the candidate has ended; a quarter of the gain if that is more."""

CALM = 0.1
"""Share of a pair's single calls, the fastest, whose slowest stands for it; there are more of them than of segments."""

PLENTY = math.log(1.5)
"""Gain of single calls from which the calmest of all pairs must show it, too. A busy machine only adds to a call, and
may add so much that the scatter of the pairs would let anything pass."""

UNLUCKY = 0.05
"""Chance that single calls which show just that share scatter below it; honest ones show all of it."""

REPORT_ROUNDS = 3
"""Rounds of report pairs until the reported interval excludes 1 and every clock sees a gain; a win that three rounds
cannot show is none."""


@dataclass
class ScreeningTrial:
    """One pair. `run` returns when the candidate is worth confirming and raises CandidateFault when not."""

    bench: Bench
    watch: Watch
    speedup: float | None = None
    pairs: tuple[Pair, ...] = ()

    def run(self, sides: Processes) -> None:
        """Whether the objective gains, and if so whether a guardrail forbids it beyond doubt."""
        self._screen(sides)
        for guardrail in self.bench.case.settings.guardrails:
            pair = self.bench.measure(sides, "screen", guardrail.suite, GLANCE_BLOCKS)
            self.pairs += (pair,)
            if is_plainly_slower(pair, 1 + guardrail.max_slowdown):
                seen = f"{speedup_of(values_of([pair])):.3f}x of the incumbent's speed, in every segment"
                raise CandidateFault(Reason.GUARDRAIL, f"suite {guardrail.suite} runs at {seen}")

    def _screen(self, sides: Processes) -> None:
        """Blocks until the gain is likely or hopeless; at the cap, the best guess decides."""
        settings = self.bench.case.settings
        suite, minimum, most = (
            settings.objective.suite,
            settings.objective.minimum_effect,
            settings.duel.screen_blocks,
        )
        taken: list[CleanBlock] = []
        with self.bench.screening(sides, suite) as duel:
            self.speedup = duel.probe()
            if self.speedup < 1 / HOPELESS:
                detail = f"its first calls ran at {self.speedup:.3f}x the incumbent's speed"
                raise CandidateFault(Reason.SLOWER, detail)
            for block in self.bench.clean_blocks(duel, most):
                taken.append(block)
                self.pairs = (pair_of("screen", suite, taken),)
                values = [log_ratio(b) for b, _ in taken]
                self.speedup = speedup_of(values)
                self.watch(Progress(stage="screen", done=len(values), of=most, speedup=self.speedup))
                if is_plainly_slower(self.pairs[0]):
                    blocks = f"{len(values)} block{'s' if len(values) > 1 else ''}"
                    raise CandidateFault(Reason.SLOWER, f"{self.speedup:.3f}x, in every segment of {blocks}")
                if evidence.proves_gain(values, minimum, SCREEN_ALPHA):
                    return
                if evidence.is_futile(values, minimum):
                    reject(values, minimum)
        if statistics.median(values) <= math.log1p(minimum):
            reject(values, minimum)


@dataclass
class ConfirmationTrial:
    """Fresh pairs. `run` returns when the win is proven and measured, and raises CandidateFault when it is not."""

    bench: Bench
    alpha: float
    watch: Watch
    e_value: float = 0.0
    speedup: Interval | None = None
    cumulative: Interval | None = None
    seconds_per_call: float | None = None
    guardrails: list[GuardrailReport] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    note: str = ""
    """What the sanitizers left to be said of a winner."""

    def run(
        self, candidate: Side, incumbent: Side, baseline: Side, check: Callable[[CandidateProcess], None]
    ) -> None:
        """Blocks until it is decided; `check` is the gate, for the candidate's first process before it is timed."""
        self.bench.stable.prepare(candidate)  # the report pairs will want kernels made from the source alone
        self.bench.stable.prepare(incumbent)
        self._decide(candidate, incumbent, check)
        self.bench.clocks.expect_agreement(self._of("decide"))
        self._expect_gain_call_by_call()
        self._guard()
        self.note = tools.sanitize(self.bench, candidate, self.watch)
        self._measure(candidate, incumbent, baseline)

    def _decide(self, candidate: Side, incumbent: Side, check: Callable[[CandidateProcess], None]) -> None:
        """One value a pair, looked at after every one."""
        settings = self.bench.case.settings
        minimum, most = settings.objective.minimum_effect, settings.duel.max_pairs
        self.watch(Progress(stage="prepare"))
        likely = evidence.fewest_values(self.alpha)
        pairs = self.bench.each_pair(candidate, incumbent, most, self.watch, is_gated=True, likely=likely)
        with closing(pairs) as ready:
            for done, sides in enumerate(ready, start=1):
                if done == 1:
                    check(sides[0])
                self.pairs += self.bench.deciding_pair(
                    sides, self._elsewhere(done), is_controlled=self._is_controlled(done)
                )
                values = values_of(self._of("decide"))
                self.e_value = evidence.e_value(values, math.log1p(minimum))
                self.watch(Progress(stage="decide", done=done, of=most, speedup=speedup_of(values)))
                if evidence.proves_gain(values, minimum, self.alpha):
                    return
                if evidence.is_futile(values, minimum):
                    break
        reject(values, minimum)

    def _elsewhere(self, pair: int) -> list[str]:
        """Distributions besides the timed one: all of them in the first pair, one at random in the later ones."""
        settings, contract = self.bench.case.settings, self.bench.contract
        timed = self.bench.case.suites[settings.objective.suite].distribution
        others = [name for name in contract.distributions if name != timed]
        return others if pair == 1 else self.bench.secret.sample(others, min(1, len(others)))

    def _is_controlled(self, pair: int) -> bool:
        """Whether the opponent is timed by itself after a pair: on a GPU the first one, and half of the others."""
        return self.bench.device.kind == "cuda" and (pair == 1 or self.bench.secret.random() < 0.5)

    def _guard(self) -> None:
        """Every guardrail's suite must be proven not to be slower than its bound allows."""
        for guardrail in self.bench.case.settings.guardrails:
            pairs = [pair for pair in self._of("guardrail") if pair.suite == guardrail.suite]
            self.bench.clocks.expect_agreement(pairs)
            speedup = evidence.interval(values_of(pairs))
            passed = speedup.low >= 1 / (1 + guardrail.max_slowdown)
            self.guardrails.append(
                GuardrailReport(
                    suite=guardrail.suite, speedup=speedup, max_slowdown=guardrail.max_slowdown, passed=passed
                )
            )
            if not passed:
                detail = f"suite {guardrail.suite} runs at {speedup} of the incumbent's speed"
                raise CandidateFault(Reason.GUARDRAIL, detail)

    def _measure(self, candidate: Side, incumbent: Side, baseline: Side) -> None:
        """The speedups to report, from pairs that decided nothing; one that they do not bear out is no win."""
        pairs: list[Pair] = []
        is_suspect = is_slowed(self._of("decide"))
        for _ in range(REPORT_ROUNDS):
            pairs += self.bench.fresh_pairs(
                candidate, incumbent, "report", self.watch, is_controlled=is_suspect
            )
            speedup, measured = evidence.interval(values_of(pairs)), self._of("decide") + pairs
            if speedup.low > 1 and self.bench.clocks.see_gain(measured, REPORT_ROUNDS):
                break
        self.pairs += pairs
        self.bench.clocks.expect_agreement(measured)
        expect_undisturbed_opponent(pairs)
        self.bench.clocks.expect_gain(measured, REPORT_ROUNDS)
        self._expect_gain_in_the_mean()
        if speedup.low <= 1:
            detail = (
                f"decided for it at an e-value of {self.e_value:.3g}, but measured afresh it is {speedup}"
            )
            raise CandidateFault(Reason.NO_PROVEN_GAIN, detail)
        self.speedup = self.cumulative = speedup
        self.seconds_per_call = seconds_per_call(pairs, "A")
        if baseline != incumbent:
            pairs = self.bench.fresh_pairs(candidate, baseline, "cumulative", self.watch)
            self.pairs += pairs
            self.bench.clocks.expect_agreement(pairs)
            self.cumulative = evidence.interval(values_of(pairs))

    def _expect_gain_call_by_call(self) -> None:
        """A gain that segments show must show in single calls too, or it comes from working ahead between calls.

        A single call carries the cost of waking and stopping a process, reckoned from the incumbent's; where that
        hides the gain, nothing can be said. Calm calls are compared with calm segments: on a busy machine long ones
        are disturbed more than single calls, and that cost would seem to be none. On a GPU both by the side's own
        events and by the judge's clock, which sees less and cannot be lied to.
        """
        segments, alone = self._of("decide"), self._of("alone")
        if len(alone) < 2:
            return
        ours, theirs = (min(calm_seconds(pair, side, share=0.0) for pair in segments) for side in ("A", "B"))
        for clock, name in ((told, ""), (seen, " by the judge's clock")):
            calm = [
                (calm_seconds(pair, "A", clock, CALM), calm_seconds(pair, "B", clock, CALM)) for pair in alone
            ]
            least_a, least_b = (min(seconds) for seconds in zip(*calm, strict=True))
            overhead = max(0.0, least_b - theirs)
            expected = math.log((theirs + overhead) / (ours + overhead))
            shown = [math.log(b / a) for a, b in calm]
            highest = evidence.upper_bound(shown, UNLUCKY)
            if expected >= PLENTY:
                highest = min(highest, math.log(least_b / least_a))
            if expected >= SHOWS_ALONE and highest < expected * SHOWN_ALONE:
                detail = (
                    f"{speedup_of(values_of(segments)):.3f}x in segments of many calls, but {speedup_of(shown):.3f}x "
                    f"where each call is timed alone{name} and {math.exp(expected):.3f}x was to be expected"
                )
                raise CandidateFault(Reason.NOT_PER_CALL, detail)

    def _expect_gain_in_the_mean(self) -> None:
        """What the medians forgive, now and then a slow block, must not be what the gain was bought with."""
        pairs = self._of("decide") + self._of("report")
        mean = statistics.fmean(log_ratio(block) for pair in pairs for block in pair.blocks)
        if mean <= 0:
            detail = f"its typical block is faster, but all blocks together run at {math.exp(mean):.3f}x"
            raise CandidateFault(Reason.NO_PROVEN_GAIN, detail)

    def _of(self, stage: str) -> list[Pair]:
        return [pair for pair in self.pairs if pair.stage == stage]


def expect_undisturbed_opponent(pairs: Sequence[Pair]) -> None:
    """What the candidate leaves running, heats or rewrites may slow its opponent, on every clock there is.

    So the opponent of some deciding pairs is timed once more when the candidate has ended. Where it is faster by
    itself, as it may be once by chance, that of every report pair is, and must not be: a candidate that behaves there
    shows no gain there either, and those pairs have to show it.
    """
    if is_slowed(pairs):
        gained = math.exp(faster_alone([pair for pair in pairs if pair.opponent_alone]))
        detail = f"the incumbent runs at {gained:.4f}x the speed once the candidate has ended"
        raise CandidateFault(Reason.LEFT_WORK_RUNNING, detail)


def is_slowed(pairs: Sequence[Pair]) -> bool:
    """Whether these opponents were faster by themselves than beside the candidate, by more than is allowed."""
    controlled = [pair for pair in pairs if pair.opponent_alone]
    if not controlled:
        return False
    return faster_alone(controlled) > max(DISTURBED, statistics.fmean(values_of(controlled)) / 4)


def faster_alone(pairs: Sequence[Pair]) -> float:
    """Log ratio by which the opponents of controlled pairs were faster by themselves, in the mean."""
    return statistics.fmean(
        math.log(seconds_per_call([pair], "B")) - statistics.fmean(map(math.log, pair.opponent_alone))
        for pair in pairs
    )


def is_plainly_slower(pair: Pair, bound: float = 1.0) -> bool:
    """Whether A's fastest segment took over `bound` times as long as B's slowest, and by how much is beyond doubt."""
    fastest, slowest = calm_seconds(pair, "A", share=0.0), calm_seconds(pair, "B", share=1.0)
    if len(pair.blocks) > 1:
        return fastest > bound * PLAINLY * slowest
    return pair.blocks[0].events is not None and fastest > bound * PLAINLY_AT_ONCE * slowest


def reject(values: list[float], minimum: float) -> NoReturn:
    """Raise CandidateFault with the name of what the values did not prove."""
    seen = f"{speedup_of(values):.3f}x over {len(values)} values"
    if evidence.is_slower(values):
        raise CandidateFault(Reason.SLOWER, seen)
    raise CandidateFault(Reason.NO_PROVEN_GAIN, f"{seen} does not prove a gain above {minimum:.2%}")
