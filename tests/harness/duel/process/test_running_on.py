"""What runs on after the word to stop is paid for in full, and no habit."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.duel.process.running_on import (
    HONEST_SECONDS,
    LATE_SECONDS,
    LATE_SHARE,
    MAX_LATE,
    RunningOn,
)
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason

seconds = st.floats(0, 1) | st.sampled_from([0.0, HONEST_SECONDS, LATE_SECONDS, LATE_SECONDS * 1.01])


@given(st.lists(st.tuples(seconds, seconds, seconds), max_size=12))
def test_every_call_pays_and_the_third_late_one_in_a_row_is_refused(
    calls: list[tuple[float, float, float]],
) -> None:
    running_on, row = RunningOn(), 0
    for called, ran, waited in calls:
        row = row + 1 if ran > LATE_SECONDS and ran > LATE_SHARE * called else 0
        if row == MAX_LATE:
            with pytest.raises(CandidateFault, match="3 calls in a row") as caught:
                running_on.charge(called, ran, waited)
            assert caught.value.reason is Reason.LEFT_WORK_RUNNING
            return
        charged = running_on.charge(called, ran, waited)
        assert charged == ran if ran <= HONEST_SECONDS else charged >= max(ran, waited)
        assert charged <= max(ran, waited)


def test_who_shares_the_cpus_with_others_pays_for_the_wait() -> None:
    assert RunningOn().charge(0.010, 0.004, 0.009) == 0.009
    assert RunningOn().charge(0.010, 0.004, 0.002) == 0.004, "of two threads"
    assert RunningOn().charge(0.010, 0.0002, 0.009) == 0.0002, "a judge that waits for a CPU charges nobody"


def test_an_end_takes_nothing_off() -> None:
    assert RunningOn().charge(0.010, -4.0, 0.001) == 0.0


def test_more_work_never_costs_less() -> None:
    charges = [RunningOn().charge(0.010, ran * 1e-5, 0.003) for ran in range(1000)]
    assert all(before <= after for before, after in pairwise(charges))
