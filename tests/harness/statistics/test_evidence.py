"""What the statistics promise: known values, and error rates on simulated noise."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.statistics.evidence import (
    alpha_share,
    clock_agreement,
    e_value,
    fewest_values,
    interval,
    is_futile,
    is_slower,
    proves_gain,
    student_quantile,
    upper_limit,
)


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 4, 2.7764), (0.95, 7, 1.8946), (0.975, 30, 2.0423)],
)
def test_student_quantiles_agree_with_published_tables(
    probability: float, freedom: int, expected: float
) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(expected, abs=1e-4)


def test_e_value_of_three_equal_values_is_the_limit_of_vanishing_noise() -> None:
    tight = e_value([0.1, 0.1 + 1e-9, 0.1 - 1e-9])
    assert e_value([0.1, 0.1, 0.1]) == pytest.approx(tight, rel=1e-6)
    assert tight == pytest.approx(statistics.fmean(1 + 3 * g for g in (0.3, 1, 4, 16)), rel=1e-6)


def test_no_evidence_where_the_mean_is_not_above_the_threshold() -> None:
    assert e_value([-0.1, -0.2, -0.15]) == 0.0
    assert e_value([0.5]) == 0.0
    assert not proves_gain([0.5, 0.5], 0.0, 0.5), "two values prove nothing"


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=12), st.floats(0, 0.5))
def test_evidence_never_grows_with_the_threshold(values: list[float], threshold: float) -> None:
    assert e_value(values, threshold) <= e_value(values, 0.0) * (1 + 1e-9)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=12), st.floats(0, 0.1))
def test_nothing_is_proven_faster_and_slower_at_once(values: list[float], minimum: float) -> None:
    assert not (proves_gain(values, minimum, 0.1) and is_slower(values))


def test_shares_of_alpha_sum_to_alpha() -> None:
    assert sum(alpha_share(0.01, k) for k in range(1, 100_000)) == pytest.approx(0.01, rel=1e-4)
    assert alpha_share(0.01, 1) > alpha_share(0.01, 2)


def _night(generator: random.Random, effect: float, alpha: float, heavy: bool) -> bool:
    """One decision: looked at after every value up to 20."""
    values: list[float] = []
    for _ in range(20):
        noise = generator.gauss(0, 0.01) * (generator.choice((0.3, 0.3, 0.3, 3.0)) if heavy else 1)
        values.append(effect + noise)
        if proves_gain(values, 0.0, alpha):
            return True
    return False


@pytest.mark.slow(6, but=["gaussian"])
@pytest.mark.parametrize("heavy", [False, True], ids=["gaussian", "heavy-tailed"])
def test_looking_after_every_value_keeps_the_false_win_rate_below_alpha(heavy: bool) -> None:
    generator = random.Random(7)
    false_wins = sum(_night(generator, 0.0, 0.05, heavy) for _ in range(2000))
    assert false_wins / 2000 <= 0.05


def test_true_gains_are_found() -> None:
    generator = random.Random(8)
    assert sum(_night(generator, 0.02, 1e-3, False) for _ in range(200)) >= 195


def test_futility_gives_up_on_equals_and_names_the_slower() -> None:
    generator = random.Random(9)
    equal = [generator.gauss(0, 0.002) for _ in range(12)]
    slower = [generator.gauss(-0.1, 0.01) for _ in range(4)]
    assert is_futile(equal, 0.01)
    assert not is_slower(equal)
    assert is_slower(slower)


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = random.Random(10)
    covered = 0
    for _ in range(2000):
        found = interval([generator.gauss(math.log(1.2), 0.05) for _ in range(5)])
        covered += found.low <= 1.2 <= found.high
    assert 0.935 <= covered / 2000 <= 0.965


def test_interval_covers_the_truth_where_a_pair_in_fourteen_is_odd() -> None:
    generator = random.Random(11)
    covered = 0
    for _ in range(2000):
        found = interval([_pair(generator) for _ in range(5)])
        covered += found.low <= 1 <= found.high
    assert covered / 2000 >= 0.935


def _pair(generator: random.Random) -> float:
    odd = 0.005 * generator.choice((-1, 1)) if generator.random() < 1 / 14 else 0
    return generator.gauss(0, 0.001) + odd


def test_a_gain_of_one_percent_is_not_hopeless_at_a_small_minimum_effect() -> None:
    generator = random.Random(12)
    given_up = 0
    for _ in range(400):
        values: list[float] = []
        for _ in range(8):
            values.append(generator.gauss(0.01, 0.002))
            given_up += is_futile(values, 0.005)
    assert given_up <= 4


def test_honest_clocks_agree() -> None:
    generator = random.Random(13)
    alarms = 0
    for _ in range(4000):
        narrow = [generator.gauss(0.01, 0.001) for _ in range(6)]
        wide = [value + generator.gauss(0, 0.006) for value in narrow]
        alarms += not clock_agreement(narrow, wide).holds
    assert alarms == 0


def test_a_lie_larger_than_the_room_is_seen() -> None:
    generator = random.Random(14)
    noise = [generator.gauss(0, 0.003) for _ in range(12)]
    wide = [generator.gauss(0, 0.003) for _ in range(8)]
    found = clock_agreement([0.02] * 8, wide, noise)
    assert not found.holds
    assert 0.002 < found.tolerance < 0.01
    assert clock_agreement([-0.02] * 8, wide, noise).holds, "a lie against oneself harms nobody"


def test_a_burst_in_one_pair_is_no_lie() -> None:
    generator = random.Random(15)
    noise = [generator.gauss(0, 0.003) for _ in range(12)]
    wide = [0.005 + generator.gauss(0, 0.003) for _ in range(5)]
    wide[3] -= 0.3
    assert clock_agreement([0.005] * 5, wide, noise, drop_worst=True).holds
    assert not clock_agreement([0.005] * 5, wide, noise).holds
    assert not clock_agreement([0.005] * 4, wide[1:], noise, drop_worst=True).holds, "of few pairs all count"
    wide[1] -= 0.3
    assert not clock_agreement([0.005] * 5, wide, noise, drop_worst=True).holds


def test_a_pair_that_is_forgiven_buys_no_room_for_the_others() -> None:
    generator = random.Random(16)
    noise = [generator.gauss(0, 0.003) for _ in range(12)]
    wide = [generator.gauss(0, 0.003) for _ in range(5)]
    honest = clock_agreement([0.0] * 4, wide[:4], noise, overhead=0.1)
    lying = clock_agreement([0.0] * 4 + [3.0], wide, noise, overhead=0.1, drop_worst=True)
    assert lying == honest


@pytest.mark.parametrize("alpha", [0.1, 0.01, 0.006, 1e-4, 1e-6])
def test_fewer_values_than_the_fewest_prove_nothing(alpha: float) -> None:
    fewest = fewest_values(alpha)
    assert fewest >= 3
    assert proves_gain([0.02, 0.02 + 1e-9] * 20, 0.0, alpha)
    values = [0.02 + 1e-9 * n for n in range(fewest)]
    assert proves_gain(values, 0.0, alpha)
    assert fewest == 3 or not proves_gain(values[:-1], 0.0, alpha)


def test_scatter_made_on_purpose_buys_little_room() -> None:
    noise = [0.001 * (-1) ** i for i in range(12)]
    quiet, loud = ([scale * (-1) ** i for i in range(8)] for scale in (0.001, 0.1))
    bought = (
        clock_agreement([0.0] * 8, loud, noise).tolerance / clock_agreement([0.0] * 8, quiet, noise).tolerance
    )
    assert 1 < bought < 3
    assert clock_agreement([0.0] * 8, loud).tolerance > 0.1, "without honest pairs to compare with, it would"


def test_what_dispatch_dilutes_is_no_lie() -> None:
    true, dispatch = math.log(2), 0.06
    seen = math.log((1 + dispatch) / (0.5 + dispatch))
    jitter = (1e-4, -1e-4, 1e-4, -1e-4)
    narrow, wide = [true] * 4, [seen + j for j in jitter]
    assert clock_agreement(narrow, wide, overhead=dispatch).holds
    assert not clock_agreement(narrow, wide).holds


def test_agreement_needs_pairs() -> None:
    with pytest.raises(ValueError, match="1 pairs"):
        clock_agreement([0.1], [0.1])
    with pytest.raises(ValueError, match="shorter"):
        clock_agreement([0.1, 0.2], [0.1])


@pytest.mark.parametrize(
    ("events", "trials", "expected"),
    [(0, 1000, 0.002991), (0, 300, 0.009936), (1, 20, 0.216107), (5, 10, 0.777559), (10, 10, 1.0)],
)
def test_upper_limits_are_exact(events: int, trials: int, expected: float) -> None:
    assert upper_limit(events, trials) == pytest.approx(expected, abs=2e-6)


def test_upper_limits_of_nonsense_are_errors() -> None:
    with pytest.raises(ValueError, match="3 events of 2"):
        upper_limit(3, 2)
