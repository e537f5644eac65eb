"""What every test is run under."""

from __future__ import annotations

import os
import signal

import pytest

BESIDE_THE_CORES = 2
"""Workers more than there are cores: for half of their time tests wait for processes."""


def pytest_xdist_auto_num_workers() -> int:
    return len(os.sched_getaffinity(0)) + BESIDE_THE_CORES


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every worker begins with slow tests: its share is a slice of the list, and others help out at its end."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    slow = [item for item in items if item.get_closest_marker("slow")]
    rest = [item for item in items if not item.get_closest_marker("slow")]
    shares = [
        (slow[n::workers], rest[len(rest) * n // workers : len(rest) * (n + 1) // workers])
        for n in range(workers)
    ]
    items[:] = [item for first, then in shares for item in (*first, *then)]


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a job put into the background by a script inherits that, and so would the programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
