"""The rule that a gain of segments must show in single calls, on simulated clocks: quiet, and on a busy machine."""

from __future__ import annotations

import math
import random
from typing import cast

import pytest

from hillclimb.harness.duel.duel_factory import SOLO_BLOCKS, DuelFactory
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.judge.trial import ConfirmationTrial
from hillclimb.harness.records import Block, Environment, Pair, Reason

PAIRS = 8
WAKING = 40e-6
"""Seconds that waking and stopping a process costs a single call."""
SLOW, FAST = 400e-6, 200e-6


def block(
    rng: random.Random, ours: float, theirs: float, busy: float, events: tuple[float, float] | None = None
) -> Block:
    """One ABBA block; with the chance `busy` a segment waits some milliseconds for a CPU, unseen by events."""
    waits = [rng.expovariate(1 / 2e-3) if rng.random() < busy else 0.0 for _ in range(4)]
    taken = [
        s * rng.lognormvariate(0, 0.02) + w for s, w in zip((ours, theirs, theirs, ours), waits, strict=True)
    ]
    a, b, c, d = taken
    told = (events[0], events[1], events[1], events[0]) if events else None
    return Block(order="ABBA", seconds=(a, b, c, d), events=told, environment=Environment())


def judged(
    seed: int,
    alone: tuple[float, float],
    busy: float,
    called: int = PAIRS,
    events: tuple[float, float] | None = None,
    segments: tuple[float, float] = (FAST, SLOW),
    slowed: float = 1.0,
    waking: float = WAKING,
    pairs: int = PAIRS,
    spread: float = 0.0,
) -> Reason | None:
    """What is said of a candidate twice as fast in segments, whose calls and whose opponent's take so long alone.

    In as many pairs as were `called` one by one. `events` are what the sides tell of their calls alone, on a GPU.
    Others slow a segment up to `slowed` times, and no single call but by waits; those of one side and pair are longer,
    all together, by e to the power of what scatters exponentially around `spread`.
    """
    rng = random.Random(seed)
    trial = ConfirmationTrial(cast(DuelFactory, None), 0.01, lambda progress: None)
    for pair in range(pairs):
        blocks = tuple(
            block(rng, *(s * rng.uniform(1, slowed) for s in segments), 0.0, (FAST, SLOW) if events else None)
            for _ in range(5)
        )
        trial.pairs.append(Pair(stage="decide", suite="main", blocks=blocks))
        longer = [math.exp(rng.expovariate(1 / spread)) if spread else 1.0 for _ in alone]
        taken = (alone[0] + waking) * longer[0], (alone[1] + waking) * longer[1]
        blocks = tuple(block(rng, *taken, busy, events) for _ in range(SOLO_BLOCKS))
        if pair < called:
            trial.pairs.append(Pair(stage="alone", suite="main", blocks=blocks))
    try:
        trial._require_gain_per_call()
    except CandidateFault as fault:
        return fault.reason
    return None


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.6])
def test_what_works_ahead_is_found_on_a_busy_machine_too(busy: float) -> None:
    verdicts = [judged(seed, (SLOW, SLOW), busy) for seed in range(50)]
    assert verdicts.count(Reason.NOT_PER_CALL) == 50


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.6])
def test_an_honest_gain_is_left_alone(busy: float) -> None:
    verdicts = [judged(seed, (FAST, SLOW), busy) for seed in range(50)]
    assert verdicts.count(None) == 50


SWIFT, LONG_WAKING = 13e-6, 345e-6
"""As a busy machine had them: 25x in segments, 1.9x in single calls, which take as long as slowed segments' calls."""


def test_segments_that_others_slow_hide_no_honest_gain() -> None:
    busy = {"segments": (SWIFT, SLOW), "slowed": 4.0, "waking": LONG_WAKING}
    verdicts = [judged(seed, (SWIFT, SLOW), 0.3, **busy) for seed in range(50)]
    assert verdicts.count(None) == 50


def test_nor_do_they_hide_what_works_ahead() -> None:
    busy = {"segments": (SWIFT, SLOW), "slowed": 4.0}
    verdicts = [judged(seed, (SLOW, SLOW), 0.3, **busy) for seed in range(50)]
    assert verdicts.count(Reason.NOT_PER_CALL) == 50


def test_single_calls_that_scatter_widely_save_no_candidate_of_much_gain() -> None:
    """Five pairs whose calls take twice as long now and then: the mean of them says nothing."""
    busy = {"segments": (SWIFT, SLOW), "slowed": 3.0, "pairs": 5, "spread": 0.5}
    found = [judged(seed, (SLOW, SLOW), 0.3, **busy) for seed in range(100)]
    assert found.count(Reason.NOT_PER_CALL) >= 90
    honest = [judged(seed, (SWIFT, SLOW), 0.3, **busy) for seed in range(100)]
    assert honest.count(None) >= 97


def test_pairs_too_close_to_show_anything_alone_do_not_save_what_works_ahead() -> None:
    verdicts = [judged(seed, (SLOW, SLOW), 0.0, called=3) for seed in range(50)]
    assert verdicts.count(Reason.NOT_PER_CALL) == 50


def test_of_single_calls_in_one_pair_nothing_is_said() -> None:
    assert judged(0, (SLOW, SLOW), 0.0, called=1) is None


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.6])
def test_events_that_claim_a_gain_of_single_calls_are_not_believed(busy: float) -> None:
    verdicts = [judged(seed, (SLOW, SLOW), busy, events=(FAST, SLOW)) for seed in range(50)]
    assert verdicts.count(Reason.NOT_PER_CALL) == 50


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.6])
def test_an_honest_gain_shows_on_both_clocks(busy: float) -> None:
    verdicts = [judged(seed, (FAST, SLOW), busy, events=(FAST, SLOW)) for seed in range(50)]
    assert verdicts.count(None) == 50
