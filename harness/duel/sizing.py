"""How many calls make a timed segment, and how much memory their slots may take."""

from __future__ import annotations

from typing import Literal

from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.process.launch_spec import SegmentPlan, Timing

HOST_POOL_BYTES = 256 << 20
CUDA_POOL_BYTES = 32 << 30
"""Most memory for one problem's call slots; on a GPU, a third of what is free, if that is less."""

MAX_SEGMENT_CALLS = 3072
"""Calls of a segment on a GPU. Drawing for a call takes its time on the host however small it is: 25 us."""

MAX_CALLS_GROWTH = 16
"""Most by which the number of calls grows from one sizing run to the next."""

MAX_CALL_SHORTFALL = 1.5
"""A segment is long enough when this many times as many calls are not wanted."""

CUDA_FIRST_CALLS = 8
"""Calls of the first sizing run on a GPU, where one call is far shorter than the wait for it."""

LEAD_IN_DIVISOR = 8
"""The untimed lead-in on a GPU is this part of a segment."""

MAX_DISPATCH_SECONDS = 3e-4
"""Most by which the judge's clock may exceed the device's own while segments are sized; 94 us were measured."""


def pool_bytes(device: Device, cache: Literal["cold", "hot"]) -> int:
    """Most memory for one problem's slots; where inputs are to be in the cache, half of it."""
    if device.kind != "cuda":
        return HOST_POOL_BYTES
    if cache == "hot":
        return device.l2_bytes // 2
    return min(CUDA_POOL_BYTES, device.free_bytes() // 3)


def most_calls(device: Device, cache: Literal["cold", "hot"], slot_bytes: int) -> int:
    """How many calls there is room for beside their lead-in and as many that feed them; one at the least."""
    most = pool_bytes(device, cache) // slot_bytes
    if device.kind == "cuda":
        groups, left = divmod(
            most, LEAD_IN_DIVISOR + 2
        )  # so many calls, one of the lead-in and one that feeds
        most = min(MAX_SEGMENT_CALLS, groups * LEAD_IN_DIVISOR + max(0, left - 2))
    return max(1, most)


def first_calls(device: Device, segment_seconds: float, seconds_per_call: float = 0.0) -> int:
    """Calls of the first sizing run: on a GPU a segment's, where an earlier duel tells the seconds of one, its `pace`.

    A CPU's kernel that hangs or crawls is to be found out by one call.
    """
    if device.kind != "cuda":
        return 1
    return max(CUDA_FIRST_CALLS, round(segment_seconds / seconds_per_call) if seconds_per_call else 0)


def lead_in_calls(device: Device, calls: int) -> int:
    """Calls of the lead-in, none on a CPU."""
    return -(-calls // LEAD_IN_DIVISOR) if device.kind == "cuda" else 0


def segment_plan(device: Device, calls: int) -> SegmentPlan:
    """A segment of `calls`: fed by as many as lead it in."""
    lead = lead_in_calls(device, calls)
    return SegmentPlan(calls, lead, backlog_calls=lead)


def plausible_seconds(timing: Timing, calls: int) -> float:
    """Seconds per call of a segment of `calls`, by the device's own clock as far as dispatch explains it."""
    return max(timing.event_seconds, timing.wall_seconds - MAX_DISPATCH_SECONDS / calls)


def calls_to_fill(seconds: float, segment_seconds: float, most: int) -> int:
    """How many calls of so many seconds fill a segment; one at the least, `most` at the most."""
    return min(max(1, most), max(1, round(segment_seconds / seconds)))
