"""Who leaves work running: never named for noise of one's own making, found when it is there."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.harness.duel.residual_work import (
    MIN_REFRESHES,
    MIN_SLOW_REFRESHES,
    ResidualWorkDetector,
    slow_threshold_seconds,
)

BLOCKS = 8
"""Of a pair."""


def told(
    seconds: Callable[[str | None], float], seed: int, blocks: int = BLOCKS
) -> ResidualWorkDetector[str]:
    """A pair's refreshes: before every segment of ABBA or BAAB by a coin."""
    quiet, coin, after = ResidualWorkDetector[str](), random.Random(seed), None
    for _ in range(blocks):
        for side in coin.choice(("ABBA", "BAAB")):
            quiet.record("softmax", seconds(after), after)
            after = side
    return quiet


@pytest.mark.parametrize("guilty", ["A", "B"])
@pytest.mark.parametrize("factor", [1.5, 2.0, 5.0])
@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_a_side_that_always_leaves_work_is_named(guilty: str, factor: float, seed: int) -> None:
    noise = random.Random(seed)
    quiet = told(
        lambda after: noise.gauss(10e-3, 0.2e-3) * (factor if after == guilty else 1), seed, blocks=10
    )
    assert quiet.culprit() == guilty, quiet.slow_counts()


@settings(max_examples=300)
@given(seed=st.integers(0, 10**6), spread=st.floats(0, 0.2))
def test_noise_names_nobody(seed: int, spread: float) -> None:
    noise = random.Random(seed)
    quiet = told(lambda _: 10e-3 * noise.lognormvariate(0, spread), seed, blocks=20)
    assert quiet.culprit() is None, quiet.slow_counts()


def test_bursts_from_outside_seldom_name_anybody() -> None:
    named = 0
    for seed in range(400):
        noise = random.Random(seed)
        quiet = told(lambda _, n=noise: 30e-3 if n.random() < 0.15 else 10e-3, seed, blocks=20)  # type: ignore[misc]
        named += quiet.culprit() is not None
    assert named <= 400 * 2 * 2**-MIN_SLOW_REFRESHES


def test_less_than_a_slice_of_the_gpus_time_is_nobodys_work() -> None:
    heard = ResidualWorkDetector[str]()
    assert not any(heard.record("k", 1e-4, "A") for _ in range(20))
    assert not heard.record("k", 9e-4, "A"), "nine times as long, and short of a slice"
    assert heard.record("k", 2e-3, "A")


@given(scale=st.floats(0.01, 1e3), seed=st.integers(0, 1000))
def test_only_ratios_count(scale: float, seed: int) -> None:
    noise = random.Random(seed)
    seconds = [noise.choice((1.0, 1.02, 2.0)) for _ in range(40)]
    one, other = ResidualWorkDetector[str](), ResidualWorkDetector[str]()
    for place, value in enumerate(seconds):
        after = "AB"[place % 2]
        assert one.record("k", value, after) == other.record("k", value * scale, after)


def test_a_key_is_judged_by_its_own_refreshes_and_not_before_some_are_known() -> None:
    quiet = ResidualWorkDetector[str]()
    assert not any(quiet.record("short", 1.0, "A") for _ in range(MIN_REFRESHES))
    assert not any(quiet.record("long", 5.0, "A") for _ in range(MIN_REFRESHES + 10))
    assert quiet.record("short", 1.4, "A")
    assert not quiet.record("short", 1.2, "A")


def test_slow_after_both_or_after_nobody_names_nobody() -> None:
    quiet = ResidualWorkDetector[str]()
    for _ in range(20):
        quiet.record("k", 1.0, "B")
    for _ in range(MIN_SLOW_REFRESHES):
        assert quiet.record("k", 3.0, None)
    assert quiet.culprit() is None
    for _ in range(MIN_SLOW_REFRESHES):
        assert quiet.record("k", 3.0, "A")
    assert quiet.culprit() == "A"
    assert quiet.record("k", 3.0, "B")
    assert quiet.culprit() is None
    assert quiet.slow_counts() == {"A": MIN_SLOW_REFRESHES, "B": 1}


def test_the_quicker_half_decides() -> None:
    assert slow_threshold_seconds([1.0] * 5 + [2.0] * 5) == pytest.approx(1.3)
