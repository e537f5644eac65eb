"""Pairs of knobs that matter together are told from those that matter alone."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from hillclimb.agent.sweep.interactions import MIN_TIMED_CONFIGURATIONS, interactions
from hillclimb.agent.sweep.landscape import KnobObservation, Landscape
from hillclimb.harness.knobs.knobs import parse_knobs

KNOBS = parse_knobs(
    """
A: {type: choice, choices: [1, 2, 4], default: 1}
B: {type: choice, choices: [1, 2, 4], default: 1}
C: {type: bool, default: false}
""",
    Path("knobs.yaml"),
)


def _landscape(value, count: int = 18) -> Landscape:  # type: ignore[no-untyped-def]
    noise = random.Random(3)
    points = list(itertools.product([1, 2, 4], [1, 2, 4], [False, True]))[:count]
    seen = [
        KnobObservation(n, {"A": a, "B": b, "C": c}, value(a, b, c) + noise.gauss(0, 0.001))
        for n, (a, b, c) in enumerate(points)
    ]
    return Landscape(KNOBS, tuple(seen))


def test_a_product_of_two_knobs_is_an_interaction() -> None:
    found = interactions(_landscape(lambda a, b, c: 0.3 * (a == b) + 0.1 * c), list("BAC"))
    assert next(iter(found)) == ("B", "A")
    assert found["B", "A"] > 0.5
    assert ("A", "C") not in found


def test_knobs_that_only_add_up_do_not_interact() -> None:
    assert interactions(_landscape(lambda a, b, c: 0.1 * a + 0.2 * b - 0.1 * c), list("ABC")) == {}


def test_few_or_equal_observations_say_nothing() -> None:
    assert (
        interactions(_landscape(lambda a, b, c: 0.3 * (a == b), MIN_TIMED_CONFIGURATIONS - 1), list("ABC"))
        == {}
    )
    flat = Landscape(KNOBS, tuple(KnobObservation(n, {"A": 1, "B": 1, "C": False}, 0.5) for n in range(20)))
    assert interactions(flat, list("ABC")) == {}
