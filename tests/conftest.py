"""What every test is run under."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Threads of torch spin while they wait for the next operation: beside others some tests took five times as long."""

settings.register_profile("shared machine", deadline=None)  # a clock there says nothing of one example
settings.load_profile("shared machine")

BESIDE_THE_CORES = 2
"""Workers more than there are cores: for half of their time tests wait for processes."""


def pytest_xdist_auto_num_workers() -> int:
    return len(os.sched_getaffinity(0)) + BESIDE_THE_CORES


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a job put into the background by a script inherits that, and so would the programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
