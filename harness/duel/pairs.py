"""Pairs of processes as records, and the values that are read off them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from hillclimb.harness.duel.duel import CleanBlock
from hillclimb.harness.records import Pair
from hillclimb.harness.statistics.readings import Letter, median_log_ratio, side_seconds

PairStage = Literal["noise", "screen", "decide", "alone", "report", "cumulative", "guardrail"]


def pair_record(
    stage: PairStage, suite: str, taken: Sequence[CleanBlock], opponent_alone: tuple[float, ...] = ()
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


def log_ratios(pairs: list[Pair]) -> list[float]:
    """Each pair's one value."""
    return [median_log_ratio(pair) for pair in pairs]


def mean_speedup(values: list[float]) -> float:
    """The geometric mean of log ratios, as a ratio."""
    return math.exp(statistics.fmean(values))


def seconds_per_call(pairs: list[Pair], letter: Letter) -> float:
    """One side's, geometric mean over all blocks."""
    logs = [math.log(side_seconds(block, letter)) for pair in pairs for block in pair.blocks]
    return math.exp(statistics.fmean(logs))
