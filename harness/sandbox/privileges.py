"""Becoming nobody: user, groups and capabilities. Standard library only."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 8, 47, 2
CAPABILITY_VERSION = 0x20080522


def become(uid: int, kept: Iterable[int]) -> None:
    """Take the user and group number `uid`, leave every other group, and keep only the capabilities named."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl(PR_SET_KEEPCAPS)")
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    mask = sum(1 << capability for capability in kept)
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    sets = struct.pack("=6I", mask, mask, mask, 0, 0, 0)
    _check(libc.capset(header, sets), "capset")
    for capability in kept:
        _check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0), "prctl(PR_CAP_AMBIENT)")


def effective() -> int:
    """This process's effective capabilities as a bit mask."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("CapEff:")[2].split()[0], 16)


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
