"""How many blocks a pair takes."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.duel.duel import CleanBlock
from hillclimb.harness.duel.pairs import MAX_ROUNDS, pair_record, until_settled
from hillclimb.harness.records import Block
from hillclimb.harness.statistics.readings import log_ratio, median_log_ratio

MINIMUM = 0.02
AT_A_TIME = 5

RATIOS = st.lists(st.floats(-0.3, 0.3), min_size=MAX_ROUNDS * AT_A_TIME, max_size=MAX_ROUNDS * AT_A_TIME)


def taken_of(ratios: Sequence[float], at_a_time: int = AT_A_TIME) -> list[CleanBlock]:
    """What a pair takes of blocks with these log ratios."""
    left = iter(ratios)

    def take() -> Iterator[CleanBlock]:
        for _ in range(at_a_time):
            slower = math.exp(next(left))
            yield Block(order="ABBA", seconds=(1.0, slower, slower, 1.0)), []

    return until_settled(take, MINIMUM)


def test_blocks_that_agree_are_enough() -> None:
    assert len(taken_of([0.05, 0.051, 0.049, 0.05, 0.052] * MAX_ROUNDS)) == AT_A_TIME


def test_one_burst_is_no_scatter() -> None:
    assert len(taken_of([0.05, 0.051, 0.9, 0.05, 0.052] * MAX_ROUNDS)) == AT_A_TIME


def test_blocks_that_scatter_are_joined_by_more_up_to_a_limit() -> None:
    generator = random.Random(3)
    ratios = [generator.gauss(0.05, 0.07) for _ in range(MAX_ROUNDS * AT_A_TIME)]
    assert len(taken_of(ratios)) == MAX_ROUNDS * AT_A_TIME


def test_blocks_that_calm_down_are_enough_from_then_on() -> None:
    assert len(taken_of([0.1, -0.1, 0.05, 0.2, -0.05, *[0.05] * 15])) == 2 * AT_A_TIME


def test_two_blocks_say_nothing_of_their_scatter() -> None:
    assert len(taken_of([0.5, -0.5] * MAX_ROUNDS, at_a_time=2)) == 2


@given(RATIOS)
def test_the_sides_swapped_take_as_many_blocks_and_give_the_opposite_value(ratios: list[float]) -> None:
    here, there = taken_of(ratios), taken_of([-ratio for ratio in ratios])
    assert len(here) == len(there)
    values = [median_log_ratio(pair_record("decide", "main", taken)) for taken in (here, there)]
    assert math.isclose(values[0], -values[1], abs_tol=1e-12)


def test_stopping_by_scatter_shifts_no_value_of_identical_sides() -> None:
    generator = random.Random(5)
    values = []
    for _ in range(4000):
        width = generator.choice([0.004, 0.02, 0.1])
        ratios = [generator.gauss(0, width) for _ in range(MAX_ROUNDS * AT_A_TIME)]
        values.append(statistics.median(log_ratio(block) for block, _ in taken_of(ratios)))
    error = statistics.stdev(values) / math.sqrt(len(values))
    assert abs(statistics.fmean(values)) < 4 * error
