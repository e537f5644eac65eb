"""Processes of other programs: a compiler, a profiler."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def dying_with_parent() -> Callable[[], None]:
    """For `preexec_fn`: the process gets SIGKILL when the thread that started it ends."""
    parent = os.getpid()

    def prepare() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise OSError("its parent died first")

    return prepare
