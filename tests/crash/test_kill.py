"""kill -9 at every effect boundary and at random moments: nothing is lost, nothing is judged twice with a verdict."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.crash.conftest import Driver
from tests.crash.state import State, complaints, users_side
from tests.crash.world import TAG

_WHOLE, _TORN = ("before", "after"), ("before", "torn", "after")
_EFFECTS = {
    # in the order in which a run first comes to them
    "lock": _WHOLE,
    "git-update-index": _TORN,
    "git-plant": _TORN,
    "git-commit": _TORN,
    "trees-create": _TORN,
    "trees-place": _WHOLE,
    "judge-gate": _WHOLE,
    "ledger-opened": _TORN,
    "git-move-start": _TORN,
    "ledger-session": _TORN,
    "judge-noise": _WHOLE,
    "samples-replace": _TORN,
    "samples-rename": _WHOLE,
    "ledger-baselined": _TORN,
    "results-replace": _TORN,
    "results-rename": _WHOLE,
    "judge-profile": _WHOLE,
    "ledger-profiled": _TORN,
    "propose": _WHOLE,
    "ledger-proposed": _TORN,
    "git-store": _TORN,
    "judge-screen": _WHOLE,
    "ledger-confirming": _TORN,
    "judge-confirm": _WHOLE,
    "ledger-judged-kept": _TORN,
    "git-move-kept": _TORN,
    "ledger-settled": _TORN,
    "results": _TORN,
    "trees-remove": _TORN,
    "ledger-judged-rejected": _TORN,
    "git-move-rejected": _TORN,
    "judge-cumulative": _WHOLE,
    "ledger-remeasured": _TORN,
    "ledger-finished": _TORN,
    "draw": ("before",),
}
POINTS = [f"{effect}:{moment}" for effect, moments in _EFFECTS.items() for moment in moments]
NIGHTS = 12
"""Every run is killed at each NIGHTS-th point, one after the other, so that all points are met in few runs."""


def test_there_are_enough_points() -> None:
    assert len(set(POINTS)) == len(POINTS) >= 25


def test_every_effect_has_its_points(twin: State) -> None:
    """A new kind of effect must be added to the list above."""
    assert set(twin.reached) <= set(POINTS)


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(POINTS[night::NIGHTS], marks=[pytest.mark.slow(2)] if night % 3 else [])
        for night in range(NIGHTS)
    ],
    ids=" ".join,
)
def test_killed_at(points: list[str], repository: Path, driver: Driver, twin: State) -> None:
    before = users_side(repository)
    for point in points:
        session = driver.climb(repository, kill=point)
        assert session["killed"], f"{point} was not reached: {session['error']}"
        assert users_side(repository) == before
    _finish(repository, driver)
    _compare(repository, before, twin)


@pytest.mark.slow(1, only=["3", "4", "5", "6", "7", "8", "9", "10", "11"])
@pytest.mark.parametrize("seed", range(12))
def test_killed_at_random_moments(seed: int, repository: Path, driver: Driver, twin: State) -> None:
    before = users_side(repository)
    moments = random.Random(seed)
    for _ in range(3):
        driver.climb(repository, after=moments.uniform(0.0, 0.5))
    _finish(repository, driver)
    _compare(repository, before, twin)


def _finish(repository: Path, driver: Driver) -> None:
    answer = driver.climb(repository)
    assert not answer["killed"] and not answer["error"], answer["error"]


def _compare(repository: Path, before: dict[str, object], twin: State) -> None:
    after = State.of(repository)
    assert after.ledger == twin.ledger
    assert after == twin
    verdicts = [line["n"] for line in map(json.loads, after.ledger.splitlines()) if line["kind"] == "judged"]
    assert verdicts == sorted(set(verdicts))
    assert users_side(repository) == before
    assert complaints(repository) == []
    run = repository / "runs/demo/toy" / TAG
    assert not list(run.rglob("*.new"))
