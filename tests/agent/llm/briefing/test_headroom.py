"""How far a profile is from its ceilings."""

from __future__ import annotations

import pytest

from hillclimb.agent.llm.briefing.headroom import bucket_line, headroom, headroom_table, work_table
from hillclimb.agent.screen.durations import describe_seconds
from hillclimb.harness.records import Bucket, Ceilings, ProblemTime, Profile

PROBLEMS = (
    ProblemTime(problem="dense", seconds_per_call=4e-3, flops=2e9, bytes=1e6),
    ProblemTime(problem="thin", seconds_per_call=3e-3, flops=1e6, bytes=2e7),
)


def test_the_scarcer_ceiling_is_the_floor() -> None:
    profile = Profile(problems=PROBLEMS, ceilings=Ceilings(flops=1e12, bytes=1e10, how="tried"))
    dense, thin = headroom(profile)
    assert (dense.floor_seconds, dense.bound, dense.factor) == (
        pytest.approx(2e-3),
        "arithmetic",
        pytest.approx(2.0),
    )
    assert (thin.floor_seconds, thin.bound, thin.factor) == (
        pytest.approx(2e-3),
        "memory",
        pytest.approx(1.5),
    )
    assert dense.flops_per_second == pytest.approx(5e11)
    assert "| dense | 4 ms | 500 | 0.25 | 2 ms (arithmetic) | 2x |" in headroom_table(headroom(profile))


def test_without_ceilings_nothing_is_claimed() -> None:
    profile = Profile(problems=PROBLEMS)
    assert [room.factor for room in headroom(profile)] == [None, None]
    assert "| dense | 4 ms | 500 | 0.25 | unknown | unknown |" in headroom_table(headroom(profile))


def test_figures_that_cannot_be_divided_by_are_survived() -> None:
    still = ProblemTime(problem="still", seconds_per_call=0.0, flops=0.0, bytes=0.0)
    profile = Profile(problems=(still,), ceilings=Ceilings(flops=0.0, bytes=0.0, how="broken"))
    assert headroom(profile)[0].floor_seconds is None
    assert "| still | 0 | 0 | - |" in work_table(profile)
    assert "| still | 0 ns | 0 | 0 | unknown | unknown |" in headroom_table(headroom(profile))


def test_work_does_not_change_with_the_kernel() -> None:
    slower = tuple(p.model_copy(update={"seconds_per_call": 1.0}) for p in PROBLEMS)
    assert work_table(Profile(problems=PROBLEMS)) == work_table(Profile(problems=slower))


def test_a_bucket_is_named_by_the_candidate_and_so_quoted() -> None:
    bucket = Bucket(name='run"\n# Your task now', share=0.5, seconds_per_call=1e-6, calls=2.0)
    assert bucket_line(bucket) == '50.0% "run\' # Your task now": 1 µs a call, entered 2 times'


@pytest.mark.parametrize(
    ("seconds", "told"), [(2.0, "2 s"), (1.5e-3, "1.5 ms"), (2e-6, "2 µs"), (3e-9, "3 ns"), (0.0, "0 ns")]
)
def test_durations_are_told_in_a_fitting_unit(seconds: float, told: str) -> None:
    assert describe_seconds(seconds) == told
