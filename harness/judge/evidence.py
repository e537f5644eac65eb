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

from harness.records import Interval

PRIOR_WIDTHS = (0.3, 1.0, 4.0, 16.0)
"""Prior variances of the effect in units of the noise variance; equal weights."""

FUTILITY_THRESHOLD = 10.0
"""E-value against 'as fast as hoped' at which a candidate is given up."""

FUTILITY_MARGIN = 0.0075
"""A candidate is hopeless when its gain beyond the minimum effect is proven to be below this log ratio."""


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


def is_futile(values: Sequence[float], minimum_effect: float) -> bool:
    """Whether going on is hopeless: proven not to be clearly above the minimum effect."""
    hoped = math.log1p(minimum_effect) + FUTILITY_MARGIN
    return len(values) >= 3 and e_value([-v for v in values], -hoped) >= FUTILITY_THRESHOLD


def is_slower(values: Sequence[float]) -> bool:
    """Whether the candidate is proven slower than the incumbent; gives a rejected one its name."""
    return len(values) >= 3 and e_value([-v for v in values]) >= FUTILITY_THRESHOLD


def spend(alpha: float, k: int) -> float:
    """The k-th confirmation's share of a run's alpha, k from 1: shares sum to alpha over any number of them."""
    return 6 * alpha / (math.pi * k) ** 2


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Speedup with Student's t interval of the mean over at least two pairs' log ratios."""
    n = len(values)
    mean = statistics.fmean(values)
    half = student_quantile(0.5 + confidence / 2, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Interval(
        estimate=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        confidence=confidence,
        pairs=n,
    )


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
