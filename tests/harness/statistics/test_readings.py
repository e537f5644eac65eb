"""How blocks and pairs are read: positive where A is faster, by the clock that is named, disturbed segments or not."""

from __future__ import annotations

import math
import random

import pytest

from hillclimb.harness.records import Block, Pair
from hillclimb.harness.statistics.readings import (
    event_seconds,
    log_ratio,
    median_log_ratio,
    quantile_log_ratio,
    quantile_seconds,
    side_seconds,
    wall_seconds,
    wall_seconds_with_lead_in,
)


def pair_of(*blocks: Block) -> Pair:
    return Pair(stage="decide", suite="main", blocks=blocks)


def test_ratios_are_positive_where_a_is_faster_on_the_clock_that_they_name() -> None:
    block = Block(
        order="BAAB", events=(4.0, 1.0, 1.0, 4.0), seconds=(2.0, 1.0, 1.0, 2.0), whole=(1.0, 1.0, 1.0, 1.0)
    )
    assert log_ratio(block) == log_ratio(block, event_seconds) == pytest.approx(math.log(4))
    assert log_ratio(block, wall_seconds) == pytest.approx(math.log(2))
    assert log_ratio(block, wall_seconds_with_lead_in) == pytest.approx(0)
    assert (side_seconds(block, "A"), side_seconds(block, "B")) == pytest.approx((1, 4))
    pair = pair_of(block)
    assert median_log_ratio(pair) == log_ratio(block)
    assert quantile_log_ratio(pair, wall_seconds) == pytest.approx(math.log(2))


def test_calm_is_the_slowest_of_the_fastest_share() -> None:
    blocks = [Block(order="ABBA", seconds=(a, 1.0, 1.0, b)) for a, b in ((5.0, 3.0), (8.0, 1.0), (7.0, 2.0))]
    blocks += [Block(order="BAAB", seconds=(1.0, 6.0, 4.0, 1.0)), Block(order="ABBA", seconds=(9, 1, 1, 10))]
    pair = pair_of(*blocks)  # 1 to 10
    assert [quantile_seconds(pair, "A", quantile=s) for s in (0.0, 0.1, 0.25, 0.5, 1.0)] == [1, 1, 3, 5, 10]
    assert quantile_seconds(pair_of(*blocks[:2]), "A") == 1, "of four segments the fastest"


def test_bursts_in_a_third_of_the_segments_leave_the_calm_reading_alone() -> None:
    """As compilers beside a duel made them on an H200: tens of percent, on the judge's clock only."""
    rng = random.Random(3)

    def burst() -> float:
        return math.exp(rng.gauss(0, 0.003)) * (1 + (rng.random() < 1 / 3) * rng.uniform(0.1, 1.5))

    def block(gain: float) -> Block:
        a, b, c, d = (burst() for _ in range(4))
        return Block(order="ABBA", seconds=(a / (1 + gain), b, c, d / (1 + gain)))

    pairs = [pair_of(block(0.01), block(0.01)) for _ in range(300)]
    calm = [quantile_log_ratio(pair, wall_seconds) for pair in pairs]
    within = sum(abs(value - math.log(1.01)) < 0.01 for value in calm)
    assert within > 0.95 * len(pairs)
    middles = [median_log_ratio(pair, wall_seconds) for pair in pairs]
    assert sum(abs(value - math.log(1.01)) < 0.01 for value in middles) < 0.3 * len(pairs)
