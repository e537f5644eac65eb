"""A row of a profile."""

from __future__ import annotations

from hillclimb.harness.records.record import Record


class Bucket(Record):
    """Where a kernel's own time goes: a function, a kernel launch or a line, as the profiler names it."""

    name: str
    share: float
    """Of the time of one call, 0 to 1, what it calls not included."""
    seconds_per_call: float
    calls: float
    """Times it was entered in one call of the kernel."""
