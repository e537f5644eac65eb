"""When a candidate is out whatever the statistics say: plainly slower, or its opponent slowed."""

from __future__ import annotations

import math
import random
from typing import cast

import pytest

from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.errors import CandidateFault, MachineError
from hillclimb.harness.judge.trial import (
    ConfirmationTrial,
    deciding_estimate,
    is_clearly_slower,
    is_opponent_slowed,
    opponent_log_gain_alone,
    require_undisturbed_opponent,
)
from hillclimb.harness.records import Block, Pair, Reason, Side


def pair(*segments: tuple[float, float, float, float], on_gpu: bool = False) -> Pair:
    """Blocks of A B B A."""
    blocks = (Block(order="ABBA", seconds=times, events=times if on_gpu else None) for times in segments)
    return Pair(stage="screen", suite="main", blocks=tuple(blocks))


def test_what_is_decided_has_an_interval_from_two_pairs_on() -> None:
    one, two = deciding_estimate([math.log(0.844)]), deciding_estimate([math.log(0.84), math.log(0.85)])
    assert (one.stage, one.speedup, one.interval) == ("decide", pytest.approx(0.844), None)
    assert str(one) == "decided 0.844x"
    assert two.interval and two.interval.low < 0.84 < 0.85 < two.interval.high
    assert two.speedup == pytest.approx(math.sqrt(0.84 * 0.85)) == two.interval.estimate


def test_a_trial_tells_what_its_pairs_saw_whatever_became_of_it() -> None:
    trial = ConfirmationTrial(cast(DuelFactory, None), 0.01, lambda progress: None)
    assert (trial.decided, trial.refuted) == (None, None), "stopped before the first pair was timed"
    slow = pair((1.2, 1.0, 1.0, 1.2))
    trial.pairs = [slow.model_copy(update={"stage": stage}) for stage in ("decide", "report", "report")]
    assert trial.decided and trial.decided.speedup == pytest.approx(1 / 1.2)
    assert trial.refuted and trial.refuted.estimate == pytest.approx(1 / 1.2)
    trial.speedup = trial.refuted
    assert trial.refuted is None, "what is reported refutes nothing"


def test_two_blocks_of_slower_segments_are_enough() -> None:
    slow = (1.03, 1.0, 1.01, 1.03)
    assert is_clearly_slower(pair(slow, slow))
    assert not is_clearly_slower(pair(slow)), "one is not"


def test_by_a_devices_events_one_block_is_enough_where_every_segment_is_slower_by_far() -> None:
    assert is_clearly_slower(pair((1.07, 1.0, 1.01, 1.07), on_gpu=True))
    assert not is_clearly_slower(pair((1.07, 1.0, 1.03, 1.07), on_gpu=True))
    assert not is_clearly_slower(pair((1.07, 1.0, 1.01, 1.07))), "a burst on the host looks like that"
    more = pair((1.07, 1.0, 1.01, 1.07), (1.07, 1.0, 1.065, 1.07), on_gpu=True)
    assert not is_clearly_slower(more), "another block may differ"


def test_a_guardrail_forgives_what_it_allows() -> None:
    slow = (1.2, 1.0, 1.01, 1.2)
    assert is_clearly_slower(pair(slow, slow), bound=1.1)
    assert not is_clearly_slower(pair(slow, slow), bound=1.2)


def test_a_single_segment_that_was_not_slower_leaves_it_open() -> None:
    slow, late = (1.03, 1.0, 1.0, 1.03), (1.03, 1.0, 1.1, 1.03)
    assert not is_clearly_slower(pair(slow, late))
    assert not is_clearly_slower(pair((1.0, 1.03, 1.03, 1.0), (1.0, 1.03, 1.03, 1.0))), "it is faster"
    assert not is_clearly_slower(pair((1.005, 1.0, 1.0, 1.005), (1.005, 1.0, 1.0, 1.005))), "not by enough"


def test_on_a_noisy_machine_few_that_are_as_fast_and_next_to_none_that_are_faster_are_lost() -> None:
    rng = random.Random(5)

    def noisy(gain: float) -> Pair:
        def block() -> tuple[float, float, float, float]:
            a, b, c, d = (math.exp(rng.gauss(0, 0.03)) for _ in range(4))
            return a / (1 + gain), b, c, d / (1 + gain)

        return pair(block(), block())

    assert sum(is_clearly_slower(noisy(0.0)) for _ in range(2000)) < 2000 / 70
    assert sum(is_clearly_slower(noisy(0.03)) for _ in range(2000)) < 10


def controlled(gain: float, alone: float) -> Pair:
    """The candidate faster by `gain`, the opponent faster by `alone` once the candidate has ended."""
    block = Block(order="ABBA", seconds=(1 / (1 + gain), 1.0, 1.0, 1 / (1 + gain)))
    return Pair(stage="decide", suite="main", blocks=(block, block), opponent_alone=(1 / (1 + alone),) * 4)


def test_an_opponent_is_slowed_where_it_runs_faster_by_itself() -> None:
    assert is_opponent_slowed([controlled(0.01, 0.005)])
    assert not is_opponent_slowed([controlled(0.01, 0.001)])
    assert not is_opponent_slowed([controlled(0.01, -0.005)])
    assert not is_opponent_slowed([controlled(0.04, 0.005)]), "a large gain is not bought with that"
    assert not is_opponent_slowed([]), "none was controlled"
    assert opponent_log_gain_alone([controlled(0.01, 0.004), controlled(0.01, 0.0)]) == pytest.approx(
        0.002, abs=1e-5
    )


def test_an_opponent_that_is_slowed_where_the_speedup_is_measured_makes_no_win() -> None:
    require_undisturbed_opponent([controlled(0.01, 0.0)] * 5)
    require_undisturbed_opponent([])
    with pytest.raises(CandidateFault, match=r"at 1\.0050x the speed once") as caught:
        require_undisturbed_opponent([controlled(0.01, 0.005)] * 5)
    assert caught.value.reason == Reason.LEFT_WORK_RUNNING


@pytest.mark.parametrize("suspect", [False, True])
def test_report_pairs_are_controlled_where_a_deciding_pair_was_slowed(suspect: bool) -> None:
    asked: list[bool] = []

    class Fresh:
        def measure_fresh_pairs(self, *arguments: object, is_controlled: bool) -> list[Pair]:
            asked.append(is_controlled)
            raise MachineError("enough was seen")

    side = Side(tree="/nowhere")
    trial = ConfirmationTrial(cast(DuelFactory, Fresh()), alpha=0.01, watch=lambda progress: None)
    trial.pairs = [controlled(0.01, 0.005 if suspect else 0.0)]
    with pytest.raises(MachineError):
        trial._measure_speedups(side, side, side)
    assert asked == [suspect]
