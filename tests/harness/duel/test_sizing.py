"""How many calls make a segment: never none, never beyond the memory, soon enough, whatever is told."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.duel import sizing
from hillclimb.harness.duel.process.launch_spec import Timing

MOST = 1 << 20
SEGMENT = 3e-3

times = st.floats(1e-7, 1.0)


class Card(CpuDevice):
    """A GPU by what sizing asks of one."""

    kind: Literal["cuda"] = "cuda"  # type: ignore[assignment]
    l2_bytes = 50 << 20

    def __init__(self, free: int) -> None:
        super().__init__()
        self._free = free

    def free_bytes(self) -> int:
        return self._free


@given(times, times, st.integers(-3, MOST))
def test_a_segment_is_one_call_at_least_and_fits_the_memory(
    seconds: float, segment: float, most: int
) -> None:
    calls = sizing.calls_to_fill(seconds, segment, most)
    assert 1 <= calls <= max(1, most)
    if 1 < calls < most:
        assert abs(calls * seconds - segment) <= seconds / 2 * (1 + 1e-9)


@given(times, times, times)
def test_slower_calls_are_never_more(one: float, other: float, segment: float) -> None:
    fast, slow = sorted((one, other))
    assert sizing.calls_to_fill(fast, segment, MOST) >= sizing.calls_to_fill(slow, segment, MOST)


@given(st.integers(1, 10**6))
def test_a_lead_in_is_an_eighth_on_a_gpu_and_nothing_on_a_cpu(calls: int) -> None:
    lead = sizing.lead_in_calls(Card(0), calls)
    assert 1 <= lead <= calls
    assert calls <= sizing.LEAD_IN_DIVISOR * lead < calls + sizing.LEAD_IN_DIVISOR
    assert sizing.lead_in_calls(CpuDevice(), calls) == 0


@given(times, times, st.integers(1, 10**5))
def test_what_is_told_is_believed_as_far_as_dispatch_explains_it(
    told: float, overhead: float, calls: int
) -> None:
    timing = Timing(told + overhead / calls, told + overhead / calls, told)
    found = sizing.plausible_seconds(timing, calls)
    assert told <= found <= timing.wall_seconds
    if overhead <= sizing.MAX_DISPATCH_SECONDS * (1 - 1e-6):
        assert found == told
    else:
        assert found == pytest.approx(told + (overhead - sizing.MAX_DISPATCH_SECONDS) / calls)


@pytest.mark.parametrize(
    ("free", "cache", "expected"),
    [
        (3 << 30, "cold", 1 << 30),
        (140 << 30, "cold", 32 << 30),
        (140 << 30, "hot", 25 << 20),
        (3 << 10, "hot", 25 << 20),
    ],
)
def test_slots_have_a_third_of_what_is_free_or_half_the_cache(
    free: int, cache: Literal["cold", "hot"], expected: int
) -> None:
    assert sizing.pool_bytes(Card(free), cache) == expected
    assert sizing.pool_bytes(CpuDevice(), cache) == sizing.HOST_POOL_BYTES


@given(st.integers(0, 1 << 36), st.integers(1, 1 << 32))
def test_calls_and_their_lead_in_have_room(free: int, slot_bytes: int) -> None:
    for device in (CpuDevice(), Card(free)):
        room = sizing.pool_bytes(device, "cold") // slot_bytes
        most = sizing.most_calls(device, "cold", slot_bytes)
        lead = sizing.lead_in_calls(device, most)
        assert most >= 1
        assert most == 1 or most + 2 * lead <= room
        if device.kind == "cuda" and most == sizing.MAX_SEGMENT_CALLS:
            continue
        assert most + 2 * lead >= room - 2, "nothing is given away"


def sized(seconds: float, dispatch: float, told: float | None) -> tuple[int, int]:
    """Calls of the first segment that is long enough, and how many were run to find out; as Duel does."""
    calls, runs = sizing.first_calls(Card(0), SEGMENT), 0
    while True:
        runs += 1
        by_clock = seconds + dispatch / calls
        timing = Timing(by_clock, by_clock, seconds if told is None else told)
        wanted = sizing.calls_to_fill(sizing.plausible_seconds(timing, calls), SEGMENT, MOST)
        if wanted < sizing.MAX_CALL_SHORTFALL * calls:
            return calls, runs
        calls = min(wanted, sizing.MAX_CALLS_GROWTH * calls)


@given(st.floats(5e-7, 1e-2), st.floats(0, 2.9e-4))
def test_an_honest_segment_is_soon_long_enough(seconds: float, dispatch: float) -> None:
    calls, runs = sized(seconds, dispatch, None)
    assert SEGMENT / sizing.MAX_CALL_SHORTFALL - seconds <= calls * seconds
    assert calls * seconds <= max(SEGMENT + seconds, sizing.CUDA_FIRST_CALLS * seconds)
    assert runs <= 5


@given(st.floats(5e-7, 1e-2), st.floats(0, 2.9e-4), st.floats(1e-15, 1.0))
def test_a_lie_about_the_time_makes_no_segment_endless(seconds: float, dispatch: float, share: float) -> None:
    """It costs what dispatch hides of it, once too often."""
    calls, _ = sized(seconds, dispatch, seconds * share)
    hidden = sizing.MAX_CALLS_GROWTH * sizing.MAX_DISPATCH_SECONDS
    assert calls * seconds <= 2 * (SEGMENT + hidden) + sizing.CUDA_FIRST_CALLS * seconds


def test_a_cpu_begins_with_one_call_and_a_gpu_with_what_the_last_opponent_would_have_wanted() -> None:
    assert (sizing.first_calls(CpuDevice(), 8e-3, 1e-3), sizing.first_calls(Card(0), 8e-3)) == (1, 8)
    assert sizing.first_calls(Card(0), 8e-3, 2e-5) == 400
    assert sizing.first_calls(Card(0), 4e-3, 2e-5) == 200, "of shorter segments"
    assert sizing.first_calls(Card(0), 8e-3, 1.0) == sizing.CUDA_FIRST_CALLS
