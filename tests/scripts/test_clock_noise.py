"""The scatter of made-up clocks is found, and what it lets ten pairs see."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "experiments"))

import clock_noise

from harness.readings import told

SECONDS = 1e-3


def made(rng: random.Random, lasting: float, passing: float, late: float) -> list[list[object]]:
    """Six blocks of one pair: sides differ by `lasting` for their life, segments scatter, some are late."""
    sides = {"A": SECONDS * math.exp(rng.gauss(0, lasting)), "B": SECONDS}
    blocks: list[list[object]] = []
    for n in range(6):
        order = ("ABBA", "BAAB")[n % 2]
        times = [
            sides[turn] * math.exp(rng.gauss(0, passing)) + (rng.random() < late) * SECONDS / 2
            for turn in order
        ]
        blocks.append([order, times, times, times])
    return blocks


def scatter(name: str, *, lasting: float, passing: float, late: float = 0.0, blocks: int = 2) -> float:
    rng = random.Random(7)
    read = clock_noise.READINGS[name]
    pairs = [clock_noise.pair_of(made(rng, lasting, passing, late)) for _ in range(400)]
    return clock_noise.deviation(
        [[read(part, told) for part in clock_noise.parts(pair, blocks)] for pair in pairs]
    )


def test_what_lasts_and_what_passes_add_up() -> None:
    """A block's log ratio scatters by as much as one segment, and two blocks' mean by less."""
    assert scatter("mean", lasting=0.01, passing=0.0) == pytest.approx(0.01, rel=0.1)
    assert scatter("mean", lasting=0.0, passing=0.01) == pytest.approx(0.01 / math.sqrt(2), rel=0.1)
    assert scatter("mean", lasting=0.01, passing=0.01) == pytest.approx(0.01 * math.sqrt(1.5), rel=0.1)


def test_late_segments_trouble_the_least_of_them_least() -> None:
    found = {
        name: scatter(name, lasting=0.0, passing=0.01, late=0.1, blocks=3) for name in clock_noise.READINGS
    }
    assert max(found["least"], found["quarter"]) < 0.02 < min(found["median"], found["mean"]), found


def test_ten_pairs_see_about_a_scatter() -> None:
    assert clock_noise.visible(0.01) == pytest.approx(0.01 / math.sqrt(10) * (2.1 + 1.28), rel=0.05)
    assert clock_noise.visible(0.0) == 0


def test_a_row_for_each_clock_and_reading() -> None:
    rows = list(clock_noise.rows([clock_noise.pair_of(made(random.Random(1), 0.01, 0.01, 0.0))], [1, 2]))
    assert len(rows) == 3 * 2 * len(clock_noise.READINGS)


def test_honest_duels_are_not_refused_and_no_lie_far_beyond_the_scatter_passes() -> None:
    rng = random.Random(3)
    kept = [made(rng, 0.0, 0.002, 0.0) for _ in range(14)]
    told_exactly = [[[order, [SECONDS] * 4, took, took] for order, _, took, _ in pair] for pair in kept]
    pairs = [clock_noise.pair_of(pair) for pair in told_exactly]
    rows = list(clock_noise.refusals(pairs, [2], 100))
    assert len(rows) == 2 * len(clock_noise.VOUCHES)
    assert all(" refuses 0 of 100, " in row for row in rows)
    gap, room = clock_noise.duel(rng, clock_noise.VOUCHES[0], pairs, 2, 8)
    assert abs(gap) < 0.003 < room < 0.03
