"""When a candidate is out whatever the statistics say: plainly slower, or its opponent slowed."""

from __future__ import annotations

import math
import random
from typing import cast

import pytest

from harness.errors import CandidateFault
from harness.judge.bench import Bench
from harness.judge.trial import ConfirmationTrial, faster_alone, is_plainly_slower, is_slowed
from harness.records import Block, Pair, Reason, Side


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


def controlled(gain: float, alone: float) -> Pair:
    """The candidate faster by `gain`, the opponent faster by `alone` once the candidate has ended."""
    block = Block(order="ABBA", seconds=(1 / (1 + gain), 1.0, 1.0, 1 / (1 + gain)))
    return Pair(stage="decide", suite="main", blocks=(block, block), opponent_alone=(1 / (1 + alone),) * 4)


def test_an_opponent_is_slowed_where_it_runs_faster_by_itself() -> None:
    assert is_slowed([controlled(0.01, 0.005)])
    assert not is_slowed([controlled(0.01, 0.001)])
    assert not is_slowed([controlled(0.01, -0.005)])
    assert not is_slowed([controlled(0.04, 0.005)]), "a large gain is not bought with that"
    assert not is_slowed([]), "none was controlled"
    assert faster_alone([controlled(0.01, 0.004), controlled(0.01, 0.0)]) == pytest.approx(0.002, abs=1e-5)


@pytest.mark.parametrize(("again", "is_out"), [(0.005, True), (0.0, False)])
def test_what_slowed_the_opponent_once_must_do_so_in_fresh_pairs(again: float, is_out: bool) -> None:
    class Fresh:
        asked = 0

        def controlled_pairs(self, candidate: Side, incumbent: Side, count: int) -> list[Pair]:
            self.asked += 1
            return [controlled(0.01, again)] * count

    fresh, side = Fresh(), Side(tree="/nowhere")
    trial = ConfirmationTrial(cast(Bench, fresh), alpha=0.01, watch=lambda progress: None)
    trial.pairs = [controlled(0.01, 0.0)]
    trial.expect_undisturbed_opponent(side, side)
    assert not fresh.asked, "nothing was seen"
    trial.pairs = [controlled(0.01, 0.005)]
    if is_out:
        with pytest.raises(CandidateFault) as caught:
            trial.expect_undisturbed_opponent(side, side)
        assert caught.value.reason == Reason.LEFT_WORK_RUNNING
    else:
        trial.expect_undisturbed_opponent(side, side)
    assert len(trial.pairs) == 4, "they are kept with the rest"
