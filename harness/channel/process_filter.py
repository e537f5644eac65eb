"""Loads a seccomp filter that was assembled elsewhere into this process. Standard library only.

The judge assembles the filter and sends it; the candidate's runner loads it. Source: seccomp(2).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from errno import EPERM

SET_FILTER, EVERY_THREAD, WITH_LISTENER = 1, 1, 8
"""An operation of seccomp(2), and two of its flags."""

SECCOMP_NUMBER = {"x86_64": 317, "aarch64": 277}
"""The system call's number on the machines that filters are assembled for."""

PR_SET_NO_NEW_PRIVS = 38


def load_filter(program: bytes, flags: int = EVERY_THREAD) -> int:
    """Load a filter for good, into every thread of this process; OSError where the kernel refuses.

    WITH_LISTENER loads it into this thread and those it starts, and returns the listener.
    """
    renounce_privileges()
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    number = SECCOMP_NUMBER[platform.machine()]
    answer = int(libc.syscall(number, SET_FILTER, flags, header))
    if answer < 0 or (answer and flags == EVERY_THREAD):  # then it names a thread that stayed out
        failure = ctypes.get_errno() if answer < 0 else EPERM
        raise OSError(failure, f"seccomp(SET_MODE_FILTER): {os.strerror(failure)}")
    return answer


def renounce_privileges() -> None:
    """Give up ever gaining privileges through exec; filters and Landlock demand it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
