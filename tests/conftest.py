"""What every test is run under."""

from __future__ import annotations

import os
import signal

BESIDE_THE_CORES = 2
"""Workers more than there are cores: for half of their time tests wait for processes."""


def pytest_xdist_auto_num_workers() -> int:
    return len(os.sched_getaffinity(0)) + BESIDE_THE_CORES


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a job put into the background by a script inherits that, and so would the programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
