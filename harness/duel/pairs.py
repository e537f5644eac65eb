"""Pairs of processes as records, and the values that are read off them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.duel import CleanBlock
from hillclimb.harness.records import Block, Pair
from hillclimb.harness.statistics.evidence import standard_error_of_median
from hillclimb.harness.statistics.readings import (
    Letter,
    log_ratio,
    median_log_ratio,
    side_seconds,
)

MAX_ROUNDS = 4
"""Times the case's number of blocks that a pair takes at the most."""

SETTLED_SHARE = 0.25
"""Standard error of a pair's value from which it needs no more blocks, as a share of the minimum effect."""

MIN_BLOCKS_TO_SCATTER = 3
"""Blocks whose scatter says something."""

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


def until_settled(take: Callable[[], Iterable[CleanBlock]], minimum_effect: float) -> list[CleanBlock]:
    """Blocks taken some at a time, until their median is known well enough to tell the minimum effect.

    Only the scatter is asked, which is the same with the sides swapped: stopping by it favours neither.
    """
    taken: list[CleanBlock] = []
    for _ in range(MAX_ROUNDS):
        taken += take()
        values = [log_ratio(block) for block, _ in taken]
        if len(values) < MIN_BLOCKS_TO_SCATTER:
            break
        if standard_error_of_median(values) <= SETTLED_SHARE * math.log1p(minimum_effect):
            break
    return taken


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


MAX_DISTURBED_BLOCKS = 4
"""Disturbed blocks one after another after which waiting for a quiet one is given up."""


def clean_blocks(device: Device, take: Callable[[], Block], count: int) -> Iterator[CleanBlock]:
    """`count` blocks, each with why others were dropped before it; at most `count` drops in all.

    A machine that was not quiet for MAX_DISTURBED_BLOCKS blocks on end is measured as it is until it is quiet again,
    and its environment recorded.
    """
    drops_left, is_awaited = count, True
    for _ in range(count):
        dropped: list[tuple[str, ...]] = []
        block = take()
        while (causes := device.disturbances(block.environment)) and is_awaited and drops_left:
            dropped.append(causes)
            drops_left, is_awaited = drops_left - 1, len(dropped) < MAX_DISTURBED_BLOCKS
            block = take()
        is_awaited = is_awaited or not causes
        yield block, dropped


COMPARISONS: tuple[PairStage, ...] = ("noise", "cumulative")
"""Stages in which both sides have passed before."""
