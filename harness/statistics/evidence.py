"""What a list of log ratios proves: e-process, futility, interval. Pure functions, no clock, no process.

A value is log(incumbent's time / candidate's time), so positive is faster. Blocks of one pair are values of
the screening; fresh pairs are the values of the decision, because two processes running identical code
differ for their whole life and the process is the sample.

Source of the e-process: Wang & Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means
with unknown variance", arXiv:2310.03722, mixed over four prior widths.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from hillclimb.harness.records import Interval

PRIOR_WIDTHS = (0.3, 1.0, 4.0, 16.0)
"""Prior variances of the effect in units of the noise variance; equal weights."""

FUTILITY_THRESHOLD = 10.0
"""E-value against 'as fast as hoped' at which a candidate is given up."""

FUTILITY_MARGINS = (0.0025, 0.0075)
"""Least and most log ratio beyond the minimum effect that a candidate must still be able to have; in between, three
quarters of the minimum effect. See docs/decisions/0009-the-keep-rule-on-a-gpu.md."""

FALSE_ALARM_RATE = 1e-5
"""Nominal chance that two honest clocks are told to disagree. Where honest gaps have heavy tails it is up to 3e-5 by
medians of blocks (docs/evidence/keep_rules.json, `agreement`), and more where others keep the host busy."""

MIN_CALIBRATION_PAIRS = 5
"""Honest pairs from which something is learned; of fewer the scatter is a guess that would refuse honest wins."""

MIN_PAIRS_TO_DROP_ONE = 5
"""Pairs of which one may be left out of an agreement."""

MAX_SCATTER_INFLATION = 3.0
"""A duel's own scatter between the clocks counts up to this many times that of honest pairs, so that a candidate cannot
buy room for a lie with noise."""


MAX_LOG_RATIO = 700.0
"""Bounds of an interval are told up to here: beyond, no float has the ratio."""

NORMAL_QUARTILE = statistics.NormalDist().inv_cdf(0.75)
"""Median absolute deviation of the standard normal distribution."""


def e_value(values: Sequence[float], threshold: float = 0.0) -> float:
    """Evidence that the mean of `values` exceeds `threshold`; 1 or less is none. Needs two values to say anything.

    At any stopping time, under a mean at or below the threshold, P(e_value >= 1/alpha) <= alpha.
    """
    n = len(values)
    if n < 2 or statistics.fmean(values) <= threshold:
        return 0.0
    freedom = n - 1
    spread = statistics.stdev(values)
    if spread == 0:
        return math.fsum((1 + n * g) ** (freedom / 2) for g in PRIOR_WIDTHS) / len(PRIOR_WIDTHS)
    squared_t = n * ((statistics.fmean(values) - threshold) / spread) ** 2

    def evidence(g: float) -> float:
        widened = 1 + n * g
        growth = math.log1p(squared_t / freedom) - math.log1p(squared_t / (freedom * widened))
        return math.exp(0.5 * (n * growth - math.log(widened)))

    return math.fsum(evidence(g) for g in PRIOR_WIDTHS) / len(PRIOR_WIDTHS)


def proves_gain(values: Sequence[float], minimum_effect: float, alpha: float) -> bool:
    """Whether a speedup above 1 + minimum_effect is proven at `alpha`; at least three values are asked for."""
    return len(values) >= 3 and e_value(values, math.log1p(minimum_effect)) >= 1 / alpha


def fewest_values(alpha: float) -> int:
    """So many values at the least prove anything at `alpha`, however little they scatter."""
    n = 3
    while e_value([1.0] * n) < 1 / alpha:
        n += 1
    return n


def is_futile(values: Sequence[float], minimum_effect: float) -> bool:
    """Whether going on is hopeless: proven not to be clearly above the minimum effect."""
    least, most = FUTILITY_MARGINS
    hoped = math.log1p(minimum_effect) + min(most, max(least, 0.75 * minimum_effect))
    return len(values) >= 3 and e_value([-v for v in values], -hoped) >= FUTILITY_THRESHOLD


def is_slower(values: Sequence[float]) -> bool:
    """Whether the candidate is proven slower than the incumbent; gives a rejected one its name."""
    return len(values) >= 3 and e_value([-v for v in values]) >= FUTILITY_THRESHOLD


def alpha_share(alpha: float, k: int) -> float:
    """The k-th confirmation's share of a run's alpha, k from 1: shares sum to alpha over any number of them."""
    return 6 * alpha / (math.pi * k) ** 2


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Speedup with Student's t interval of the mean over at least two pairs' log ratios."""
    n = len(values)
    mean = statistics.fmean(values)
    half = student_quantile(0.5 + confidence / 2, n - 1) * statistics.stdev(values) / math.sqrt(n)
    low, high = (max(-MAX_LOG_RATIO, min(MAX_LOG_RATIO, bound)) for bound in (mean - half, mean + half))
    return Interval(
        estimate=math.exp(mean),
        low=math.exp(low),
        high=math.exp(high),
        confidence=confidence,
        pairs=n,
    )


def standard_error_of_median(values: Sequence[float]) -> float:
    """By the values' median absolute deviation, as of a normal distribution; a few far away ones do not count."""
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values) / NORMAL_QUARTILE
    return math.sqrt(math.pi / (2 * len(values))) * deviation


def upper_bound(values: Sequence[float], chance: float) -> float:
    """What the mean exceeds with this chance at the most; by Student's t, over two values at the least."""
    n = len(values)
    room = student_quantile(1 - chance, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return statistics.fmean(values) + room


@dataclass(frozen=True)
class Agreement:
    """Whether a precise clock that may lie stays inside the interval of a coarse one that does not; log ratios."""

    gap: float
    """Gain on the narrow clock less gain on the wide one; positive flatters the candidate."""
    tolerance: float
    """The largest gap that honest clocks show: also the largest lie that passes."""

    @property
    def holds(self) -> bool:
        return self.gap <= self.tolerance


def diluted(gain: float, overhead: float) -> float:
    """What a clock shows of a log ratio that sees besides what both sides take alike, as a share of the opponent's."""
    return math.log((1 + overhead) / (math.exp(-gain) + overhead))


def clock_agreement(
    narrow: Sequence[float],
    wide: Sequence[float],
    noise: Sequence[float] = (),
    overhead: float = 0.0,
    *,
    drop_worst: bool = False,
) -> Agreement:
    """Hold one clock's values against another's over the same pairs, at a false alarm of FALSE_ALARM_RATE.

    `narrow` and `wide` hold one log ratio a pair, two pairs or more. `noise` holds narrow less wide of honest pairs,
    such as those of an A/A duel; five or more make the interval tighter, and proof against scatter made on purpose.
    `overhead` is what only the wide clock sees of a segment, as a share of the incumbent's; it dilutes its ratio. If
    `drop_worst`, the pair with the largest gap is left out of MIN_PAIRS_TO_DROP_ONE or more, so that a burst in one
    refuses no win.

    Student's t on the gaps, one-sided: honest ones have mean 0, because a coin decides which process comes first.
    Raises ValueError where lengths differ or there are fewer than two pairs.
    """
    n, own = len(narrow), [a - b for a, b in zip(narrow, wide, strict=True)]
    if n < 2:
        raise ValueError(f"agreement: {n} pairs of values; two at least are needed")
    if drop_worst and n >= MIN_PAIRS_TO_DROP_ONE:
        worst = own.index(max(own))
        own, narrow = ([*x[:worst], *x[worst + 1 :]] for x in (own, narrow))
        n -= 1
    freedom, squares = n - 1, (n - 1) * statistics.variance(own)
    if len(noise) >= MIN_CALIBRATION_PAIRS:
        honest = statistics.variance(noise)
        squares = min(squares, freedom * MAX_SCATTER_INFLATION**2 * honest) + (len(noise) - 1) * honest
        freedom += len(noise) - 1
    spread = math.sqrt(squares / freedom / n)
    gain = max(0.0, statistics.fmean(narrow))
    room = student_quantile(1 - FALSE_ALARM_RATE, freedom) * spread + gain - diluted(gain, overhead)
    return Agreement(gap=statistics.fmean(own), tolerance=room)


def upper_limit(events: int, trials: int, confidence: float = 0.95) -> float:
    """Exact one-sided upper confidence limit of a probability, of which `events` of `trials` were seen.

    Clopper & Pearson, Biometrika 26 (1934) 404: the probability at which so few events have chance 1 - confidence.
    Raises ValueError where there are more events than trials, or no trials.
    """
    if not 0 <= events <= trials or trials == 0:
        raise ValueError(f"upper_limit: {events} events of {trials} trials")
    if events == trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        enough = _binomial_cdf(events, trials, middle) > 1 - confidence
        low, high = (middle, high) if enough else (low, middle)
    return high


def _binomial_cdf(events: int, trials: int, probability: float) -> float:
    """P(X <= events), summed in logarithms."""
    logs = (
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(probability) + (trials - k) * math.log1p(-probability)
        for k in range(events + 1)
    )  # fmt: skip
    return math.fsum(math.exp(log) for log in logs)


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t with whole degrees of freedom, for probability in (0.5, 1), by bisection."""
    low, high = 0.0, 1.0
    while _student_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _student_cdf(t: float, freedom: int) -> float:
    """P(T <= t) for t >= 0. Abramowitz & Stegun, 26.7.3 (odd) and 26.7.4 (even degrees of freedom)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = 1.0, 0.0
    for i in range(freedom // 2):
        total += term
        term *= cosine * (2 * i + 1 + odd) / (2 * i + 2 + odd)
    if not odd:
        return 0.5 + 0.5 * math.sin(angle) * total
    return 0.5 + (angle + math.sin(angle) * math.cos(angle) * total) / math.pi
