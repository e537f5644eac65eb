"""When a candidate is out before the statistics have spoken: only where every one of its segments says so."""

from __future__ import annotations

import math
import random

from harness.judge.trial import is_plainly_slower
from harness.records import Block, Pair


def pair(*segments: tuple[float, float, float, float], on_gpu: bool = False) -> Pair:
    """Blocks of A B B A."""
    blocks = (Block(order="ABBA", seconds=times, events=times if on_gpu else None) for times in segments)
    return Pair(stage="screen", suite="main", blocks=tuple(blocks))


def test_two_blocks_of_slower_segments_are_enough() -> None:
    slow = (1.03, 1.0, 1.01, 1.03)
    assert is_plainly_slower(pair(slow, slow))
    assert not is_plainly_slower(pair(slow)), "one is not"


def test_by_a_devices_events_one_block_is_enough_where_every_segment_is_slower_by_far() -> None:
    assert is_plainly_slower(pair((1.07, 1.0, 1.01, 1.07), on_gpu=True))
    assert not is_plainly_slower(pair((1.07, 1.0, 1.03, 1.07), on_gpu=True))
    assert not is_plainly_slower(pair((1.07, 1.0, 1.01, 1.07))), "a burst on the host looks like that"
    more = pair((1.07, 1.0, 1.01, 1.07), (1.07, 1.0, 1.065, 1.07), on_gpu=True)
    assert not is_plainly_slower(more), "another block may differ"


def test_a_guardrail_forgives_what_it_allows() -> None:
    slow = (1.2, 1.0, 1.01, 1.2)
    assert is_plainly_slower(pair(slow, slow), bound=1.1)
    assert not is_plainly_slower(pair(slow, slow), bound=1.2)


def test_a_single_segment_that_was_not_slower_leaves_it_open() -> None:
    slow, late = (1.03, 1.0, 1.0, 1.03), (1.03, 1.0, 1.1, 1.03)
    assert not is_plainly_slower(pair(slow, late))
    assert not is_plainly_slower(pair((1.0, 1.03, 1.03, 1.0), (1.0, 1.03, 1.03, 1.0))), "it is faster"
    assert not is_plainly_slower(pair((1.005, 1.0, 1.0, 1.005), (1.005, 1.0, 1.0, 1.005))), "not by enough"


def test_on_a_noisy_machine_few_that_are_as_fast_and_next_to_none_that_are_faster_are_lost() -> None:
    rng = random.Random(5)

    def noisy(gain: float) -> Pair:
        def block() -> tuple[float, float, float, float]:
            a, b, c, d = (math.exp(rng.gauss(0, 0.03)) for _ in range(4))
            return a / (1 + gain), b, c, d / (1 + gain)

        return pair(block(), block())

    assert sum(is_plainly_slower(noisy(0.0)) for _ in range(2000)) < 2000 / 70
    assert sum(is_plainly_slower(noisy(0.03)) for _ in range(2000)) < 10
