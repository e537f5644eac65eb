"""Masked lanes and loop trips in words: a line for each kernel's run, access and loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hillclimb.harness.records import KernelRuns, LaneCount, Lanes, TripCount
from hillclimb.harness.wording import count

Quote = Callable[[str], str]
"""How text that comes from a workspace is written."""


def lane_lines(lanes: Lanes, quote: Quote) -> Iterator[str]:
    """One problem's: the whole, accesses by lanes masked off, loops by trips."""
    if not lanes.accesses:
        yield f"{lanes.problem}: {quote(lanes.detail or 'nothing was loaded or stored')}"
        return
    share, total = lanes.masked_share() or 0.0, sum(access.lanes for access in lanes.accesses)
    runs = ", ".join(_run(kernel, quote) for kernel in lanes.kernels)
    yield f"{lanes.problem}: {share:.1%} of {total:,} lanes masked off; {runs}"
    several = len(lanes.kernels) > 1
    for access in sorted(lanes.accesses, key=lambda access: -access.masked):
        yield f"{_where(access, quote, several)} {_access(access)}{_says(access, quote)}"
    for loop in sorted(lanes.loops, key=lambda loop: -loop.trips):
        yield f"{_where(loop, quote, several)} {_loop(loop)}{_says(loop, quote)}"


def _run(kernel: KernelRuns, quote: Quote) -> str:
    return f"{quote(kernel.kernel)} launched {_times(kernel.launches)} with {kernel.programs:,} programs"


def _access(access: LaneCount) -> str:
    masked = (
        f"{access.share:.1%} of {access.lanes:,} lanes masked off" if access.masked else "no lane masked off"
    )
    return f"{access.kind} run {_times(access.runs)}, {masked}, {access.bytes:,} useful bytes"


def _loop(loop: TripCount) -> str:
    if not loop.entries:
        return "loop never reached"
    if loop.fewest == loop.most:
        trips = f"{count(loop.most, 'trip')} each"
    else:
        trips = f"{loop.fewest:,} to {loop.most:,} trips, {loop.mean:,.4g} on average, {loop.trips:,} in all"
    return f"loop reached {_times(loop.entries)}, {trips}"


def _where(place: LaneCount | TripCount, quote: Quote, several: bool) -> str:
    return f"{quote(place.kernel)} at {quote(place.place)}:" if several else f"{quote(place.place)}:"


def _says(place: LaneCount | TripCount, quote: Quote) -> str:
    return f": {quote(place.source)}" if place.source else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
