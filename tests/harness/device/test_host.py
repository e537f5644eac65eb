"""What /proc/stat says of a host over some time."""

from __future__ import annotations

import os

import pytest

from hillclimb.harness.device import host
from hillclimb.harness.device.host import CpuCounters, HostLoad, load_since

CPUS = os.cpu_count() or 1
START = CpuCounters(busy=100.0, steal=10.0, clock=1000.0)


def after(monkeypatch: pytest.MonkeyPatch, seconds: float, busy: float, steal: float) -> CpuCounters:
    """The counters so much later, which are what is read next; where they began."""
    now = CpuCounters(START.busy + busy, START.steal + steal, START.clock + seconds)
    monkeypatch.setattr(host, "read_counters", lambda: now)
    return START


def test_work_that_is_not_the_duels_counts_in_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    start = after(monkeypatch, seconds=2.0, busy=1.5, steal=0.2 * CPUS)
    assert load_since(start, own_seconds=1.0) == HostLoad(steal=0.1, others=0.25)


def test_the_duel_may_have_counted_more_than_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    start = after(monkeypatch, seconds=2.0, busy=1.0, steal=0.0)
    assert load_since(start, own_seconds=1.2) == HostLoad(steal=0.0, others=0.0)


@pytest.mark.parametrize("seconds", [0.0, 1e-4, 0.005])
def test_ticks_in_a_shorter_time_are_no_more_than_all_cpus(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    start = after(monkeypatch, seconds, busy=0.01 * CPUS, steal=0.01 * CPUS)
    assert load_since(start, own_seconds=0.0) == HostLoad(steal=1.0, others=CPUS)
