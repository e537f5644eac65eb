"""Which clocks a gain must show on: honest noise passes, a told gain and one moved into the lead-in do not."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass

import pytest

from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Block, Pair, Reason
from hillclimb.harness.statistics import evidence
from hillclimb.harness.statistics.clocks import MAX_HONEST, ClockCalibration
from hillclimb.harness.statistics.readings import log_ratio, wall_seconds, wall_seconds_with_lead_in

CALLS, LEAD = 220, 28
SECONDS = 18e-6
"""Of one call: segments of 4 ms, as were measured on an H200."""

DISPATCH = 94e-6
BLOCK_SD, PAIR_SD = 1.2e-3, 0.5e-3
"""Of a log ratio by device events: of blocks within a pair, and of pairs."""

WALL_SD = 4.5e-3
"""Of what the judge's clock adds to a pair."""


@dataclass(frozen=True)
class Cheat:
    """What side A does about its time; all shares of a call."""

    told: float = 0.0
    """Left out of what it says."""
    moved: float = 0.0
    """Done in the lead-in for the timed calls."""


HONEST = Cheat()


def pair(chance: random.Random, gain: float, cheat: Cheat = HONEST, wall_sd: float = WALL_SD) -> Pair:
    """Four blocks of one pair, A truly faster by a log ratio of `gain`."""
    of_pair, of_wall = chance.gauss(0, PAIR_SD), chance.gauss(0, wall_sd)
    blocks = []
    for number in range(4):
        order = "ABBA" if number % 2 else "BAAB"
        turns = [turn(chance, letter, gain + of_pair, of_wall, cheat, wall_sd) for letter in order]
        events, seconds, whole = zip(*turns, strict=True)
        blocks.append(Block(order=order, events=events, seconds=seconds, whole=whole))
    return Pair(stage="decide", suite="main", blocks=tuple(blocks))


def turn(
    chance: random.Random, letter: str, gain: float, of_wall: float, cheat: Cheat, wall_sd: float
) -> tuple[float, float, float]:
    """(events, seconds, whole) per call of one segment."""
    is_a = letter == "A"
    true = SECONDS * math.exp(-gain if is_a else 0.0) * math.exp(chance.gauss(0, BLOCK_SD))
    timed = true * CALLS * (1 - cheat.moved if is_a else 1)
    slow = math.exp((-of_wall if is_a else 0.0) + chance.gauss(0, wall_sd / 2))
    lead = true * LEAD + (true * CALLS - timed)
    wall, led = timed * slow + DISPATCH, lead * slow + DISPATCH
    told = timed * (1 - cheat.told if is_a else 1)
    return told / CALLS, wall / CALLS, (wall + led) / (CALLS + LEAD)


def pairs(
    chance: random.Random, count: int, gain: float = 0.0, cheat: Cheat = HONEST, wall_sd: float = WALL_SD
) -> list[Pair]:
    return [pair(chance, gain, cheat, wall_sd) for _ in range(count)]


def learned(chance: random.Random, count: int = 12, wall_sd: float = WALL_SD) -> ClockCalibration:
    clocks = ClockCalibration()
    clocks.calibrate(pairs(chance, count, wall_sd=wall_sd))
    return clocks


def disagrees(clocks: ClockCalibration, found: list[Pair]) -> bool:
    try:
        clocks.require_agreement(found)
    except CandidateFault as fault:
        assert fault.reason is Reason.CLOCKS_DISAGREE
        return True
    return False


@pytest.mark.slow(1, but=["0-0.0025", "0-0.7", "5-0.01", "12-0.1"])
@pytest.mark.parametrize("gain", [0.0025, 0.01, 0.1, 0.7])
@pytest.mark.parametrize("knows", [0, 5, 12])
def test_honest_gains_pass(gain: float, knows: int) -> None:
    chance = random.Random(f"{gain} {knows}")
    alarms = 0
    for _ in range(150):
        clocks = learned(chance, knows) if knows else ClockCalibration()
        alarms += disagrees(clocks, pairs(chance, chance.randint(3, 12), gain))
    assert alarms == 0


def test_a_gain_that_only_the_events_tell_is_none() -> None:
    chance = random.Random(1)
    caught = [disagrees(learned(chance), pairs(chance, 6, 0.0, Cheat(told=0.03))) for _ in range(100)]
    assert sum(caught) == 100


def test_it_is_caught_in_the_end_where_nothing_was_learned() -> None:
    chance = random.Random(2)
    caught = [disagrees(ClockCalibration(), pairs(chance, 30, 0.0, Cheat(told=0.03))) for _ in range(100)]
    assert sum(caught) == 100


def test_the_fault_says_by_how_much_and_by_which_clock() -> None:
    chance = random.Random(3)
    with pytest.raises(CandidateFault) as caught:
        learned(chance).require_agreement(pairs(chance, 8, 0.0, Cheat(told=0.1)))
    says = r"1\.11\d\dx by its device events, but (0\.9|1\.0)\d+x by the judge's clock: "
    says += r"1\d\.\d\d% apart, where honest clocks stay within [01]\.\d\d%"
    assert re.fullmatch(says, caught.value.detail)


@pytest.mark.parametrize("moved", [0.05, 0.2, 0.9])
def test_work_moved_into_the_lead_in_is_no_gain(moved: float) -> None:
    chance = random.Random(4)
    for _ in range(50):
        found = pairs(chance, 8, 0.0, Cheat(moved=moved))
        with pytest.raises(CandidateFault, match="by the judge's clock with the lead-in") as caught:
            learned(chance).require_agreement(found)
        assert caught.value.reason is Reason.CLOCKS_DISAGREE


def test_a_slower_candidate_may_say_what_it_likes_of_itself() -> None:
    chance = random.Random(5)
    assert not any(disagrees(learned(chance), pairs(chance, 8, 0.02, Cheat(told=-0.1))) for _ in range(50))


@pytest.mark.slow(2)
def test_learning_tightens_the_room() -> None:
    """A lie that the scatter of a few pairs would hide."""
    chance = random.Random(6)
    lies = [pairs(chance, 4, 0.0, Cheat(told=0.03)) for _ in range(100)]
    ignorant = sum(disagrees(ClockCalibration(), lie) for lie in lies)
    wiser = sum(disagrees(learned(chance, 6), lie) for lie in lies)
    wise = sum(disagrees(learned(chance, 40), lie) for lie in lies)
    assert ignorant <= 10
    assert ignorant < wiser < wise
    assert wise >= 95


def test_what_was_learned_long_ago_is_forgotten() -> None:
    chance = random.Random(7)
    lie = pairs(chance, 6, 0.0, Cheat(told=0.03))
    clocks = learned(chance, MAX_HONEST, wall_sd=0.2)
    clocks.calibrate(pairs(chance, MAX_HONEST // 2))
    assert not disagrees(clocks, lie)
    clocks.calibrate(pairs(chance, MAX_HONEST // 2))
    assert disagrees(clocks, lie)


def test_scatter_made_on_purpose_hides_no_lie() -> None:
    chance = random.Random(8)
    caught = 0
    for _ in range(50):
        loud = pairs(chance, 8, 0.0, Cheat(told=0.1), wall_sd=0.1)
        caught += disagrees(learned(chance, 40), loud)
        assert not disagrees(ClockCalibration(), loud), "without honest pairs to compare with, it would"
    assert caught >= 48


def without_events(found: list[Pair]) -> list[Pair]:
    """As a CPU is measured: nobody tells anything."""
    return [
        p.model_copy(
            update={
                "blocks": tuple(b.model_copy(update={"events": None, "whole": None}) for b in p.blocks),
            }
        )
        for p in found
    ]


def test_where_nothing_is_told_there_is_nothing_to_hold_it_to() -> None:
    chance = random.Random(9)
    lie = without_events(pairs(chance, 8, 0.0, Cheat(told=0.5, moved=0.5)))
    assert not disagrees(learned(chance), lie)
    assert not disagrees(ClockCalibration(), lie[:1]), "not even two pairs are asked for"


def test_a_block_without_events_is_read_by_the_clock() -> None:
    (found,) = pairs(random.Random(10), 1, 0.05)
    for block, bare in zip(found.blocks, without_events([found])[0].blocks, strict=True):
        by_clock = log_ratio(block, wall_seconds)
        assert (
            by_clock
            == log_ratio(bare)
            == log_ratio(bare, wall_seconds)
            == log_ratio(bare, wall_seconds_with_lead_in)
        )
        assert len({log_ratio(block), by_clock, log_ratio(block, wall_seconds_with_lead_in)}) == 3


def sees(found: list[Pair]) -> bool:
    try:
        ClockCalibration().require_gain(found)
    except CandidateFault as fault:
        assert fault.reason is Reason.CLOCKS_DISAGREE
        assert " sees no gain: " in fault.detail
        return False
    return True


def test_a_plain_gain_is_seen_by_every_clock() -> None:
    chance = random.Random(11)
    assert all(sees(pairs(chance, 6, 0.03)) for _ in range(200))


def test_a_gain_that_is_only_told_is_seldom_seen_by_the_judges_clock() -> None:
    chance = random.Random(12)
    assert sum(sees(pairs(chance, 6, 0.0, Cheat(told=0.005))) for _ in range(400)) < 0.12 * 400


def test_a_gain_out_of_the_lead_in_is_seldom_seen_with_it() -> None:
    chance = random.Random(13)
    assert sum(sees(pairs(chance, 6, 0.0, Cheat(moved=0.2))) for _ in range(400)) < 0.12 * 400


def in_the_end(chance: random.Random, gain: float, cheat: Cheat = HONEST) -> bool:
    """Whether a gain is seen in one of three looks over more and more pairs, as a report takes them."""
    found = pairs(chance, 5, gain, cheat)
    for _ in range(3):
        found += pairs(chance, 5, gain, cheat)
        if ClockCalibration().shows_gain(found, 3):
            return True
    return False


@pytest.mark.slow(2)
def test_looking_again_finds_small_gains_and_no_more_lies() -> None:
    chance = random.Random(16)
    assert sum(in_the_end(chance, 0.005) for _ in range(100)) >= 95
    assert sum(in_the_end(chance, 0.0, Cheat(told=0.005)) for _ in range(400)) < 0.12 * 400


def disturbed(chance: random.Random, pair: Pair, share: float) -> Pair:
    """Segments by the judge's clock longer by tens of percent, as compilers beside a duel make them."""

    def longer(times: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(t * (1 + (chance.random() < share) * chance.uniform(0.1, 1.5)) for t in times)

    blocks = (b.model_copy(update={"seconds": longer(b.seconds)}) for b in pair.blocks)
    return pair.model_copy(update={"blocks": tuple(blocks)})


@pytest.mark.slow(2)
def test_bursts_hide_no_gain() -> None:
    chance = random.Random(17)
    found = [[disturbed(chance, p, 0.2) for p in pairs(chance, 10, 0.01)] for _ in range(200)]
    assert sum(map(sees, found)) >= 190
    still = [[disturbed(chance, p, 0.2) for p in pairs(chance, 10)] for _ in range(400)]
    assert sum(map(sees, still)) < 0.12 * 400


LIES = {
    "about the events": ("events",),
    "and with the lead-in's help": ("events", "seconds"),
}
"""Which clocks tell of a gain also where there is none."""


@pytest.mark.slow(2, but=["and with the lead-in's help"])
@pytest.mark.parametrize("fooled", LIES.values(), ids=LIES)
def test_a_lie_in_all_segments_but_the_calm_ones_is_found(fooled: tuple[str, ...]) -> None:
    """A is truly faster in its first two segments of eight, and seems so in all."""
    chance, gain = random.Random(18), 0.03

    def lie(pair: Pair) -> Pair:
        blocks = []
        for number, block in enumerate(pair.blocks):
            share = [math.exp(-gain) if side == "A" else 1.0 for side in block.order]
            times = {
                clock: tuple(t * x for t, x in zip(getattr(block, clock), share, strict=True))
                for clock in ("events", "seconds", "whole")
                if number == 0 or clock in fooled
            }
            blocks.append(block.model_copy(update=times))
        return pair.model_copy(update={"blocks": tuple(blocks)})

    lies = [[lie(pair) for pair in pairs(chance, 6)] for _ in range(100)]
    assert sum(sees(found) for found in lies) > 90
    assert sum(disagrees(learned(chance, 40), found) for found in lies) > 90


def test_nothing_need_be_seen_where_nothing_is_told() -> None:
    assert sees(without_events(pairs(random.Random(14), 3, -0.5)))


def test_it_is_taught_by_pairs() -> None:
    assert not ClockCalibration().is_calibrated
    assert not learned(random.Random(15), evidence.MIN_CALIBRATION_PAIRS - 1).is_calibrated
    assert learned(random.Random(15), evidence.MIN_CALIBRATION_PAIRS).is_calibrated
