"""How blocks and pairs are read: by which clock, and what stands for a side's segments. Pure functions of records.

A ratio is log(B's time / A's time), so positive where A, the candidate, is the faster one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Literal

from hillclimb.harness.records import Block, Pair

QUIET_QUANTILE = 0.25
"""Share of a side's segments in a pair, the fastest, whose slowest stands for them. What disturbs a segment by the
judge's own clock makes it longer, never shorter, and by far more than that clock scatters otherwise
(docs/decisions/0011-device-events-inside-the-judges-clock.md)."""

SegmentSeconds = tuple[float, ...]

ReadClock = Callable[[Block], SegmentSeconds]
"""Seconds per call of a block's segments, in the order run."""

Letter = Literal["A", "B"]


def event_seconds(block: Block) -> SegmentSeconds:
    """By each side's own device events; where there are none, by the judge's clock."""
    return block.events or block.seconds


def wall_seconds(block: Block) -> SegmentSeconds:
    """By the judge's own clock."""
    return block.seconds


def wall_seconds_with_lead_in(block: Block) -> SegmentSeconds:
    """By the judge's own clock, the untimed lead-in on a GPU included."""
    return block.whole or block.seconds


def log_ratio(block: Block, clock: ReadClock = event_seconds) -> float:
    """Of a block: the mean of its segments of either side, of which there are as many."""
    signs = [1 if letter == "B" else -1 for letter in block.order]
    logs = (sign * math.log(s) for sign, s in zip(signs, clock(block), strict=True))
    return sum(logs) / (len(block.order) // 2)


def median_log_ratio(pair: Pair, clock: ReadClock = event_seconds) -> float:
    """Of a pair: the median of its blocks, which a burst of somebody else's work spoils less than the mean."""
    return statistics.median(log_ratio(block, clock) for block in pair.blocks)


def quantile_log_ratio(pair: Pair, clock: ReadClock, quantile: float = QUIET_QUANTILE) -> float:
    """Of a pair: of the segments in which either side was disturbed the least."""
    return math.log(
        quantile_seconds(pair, "B", clock, quantile) / quantile_seconds(pair, "A", clock, quantile)
    )


def quantile_seconds(
    pair: Pair, letter: Letter, clock: ReadClock = event_seconds, quantile: float = QUIET_QUANTILE
) -> float:
    """The slowest of this share of one side's segments in a pair, its fastest."""
    taken = sorted(
        seconds
        for block in pair.blocks
        for seconds, turn in zip(clock(block), block.order, strict=True)
        if turn == letter
    )
    return taken[int(quantile * (len(taken) - 1))]


def side_seconds(block: Block, letter: Letter) -> float:
    """One side's seconds per call in a block."""
    turns = zip(event_seconds(block), block.order, strict=True)
    return math.exp(statistics.fmean(math.log(seconds) for seconds, turn in turns if turn == letter))
