"""Becoming nobody: which user to become, and how. Standard library only."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Sequence
from errno import EINVAL
from pathlib import Path

from hillclimb.harness.errors import SandboxError

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_CAP_AMBIENT = 8, 24, 47
PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
MAX_CAPABILITIES = 64
CAPABILITY_VERSION = 0x20080522

REACH_CAPABILITIES_MASK = 1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH
"""All that `capabilities_to_reach` ever asks to keep, as a bit mask."""

FREE_UID_RANGE = (0x70000000, 0x0FFFFFFF)
"""First and number of the user ids that systemd's table (UIDS-GIDS.md) leaves unused, where all are mapped."""

FREE_UID_RANGE_16_BIT = (60578, 606)
"""The same within the 16 bits that a container may be limited to."""


def become_user(uid: int, kept: Iterable[int]) -> None:
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


def drop_capabilities() -> None:
    """Give up every capability, in every set, and for every program to come."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(MAX_CAPABILITIES):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) and ctypes.get_errno() != EINVAL:
            raise OSError(ctypes.get_errno(), "prctl(PR_CAPBSET_DROP)")
    _check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "prctl(PR_CAP_AMBIENT)")
    _check(libc.capset(struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)), "capset")


def pick_unused_uid() -> int:
    """Pick a user number that nobody on this machine has."""
    first, count = FREE_UID_RANGE if _is_mapped(sum(FREE_UID_RANGE)) else FREE_UID_RANGE_16_BIT
    return first + int.from_bytes(os.urandom(8)) % count


def capabilities_to_reach(paths: Sequence[str]) -> list[int]:
    """Capabilities a foreign user needs to reach these paths: none, or one that opens folders like a 0700 /root.

    Landlock still decides what may be opened, and seccomp keeps attributes from being changed.
    """
    if all(_is_open(Path(path)) for path in paths):
        return []
    held = effective_capabilities()
    for capability in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        if held >> capability & 1:
            return [capability]
    closed = next(path for path in paths if not _is_open(Path(path)))
    raise SandboxError(
        f"{closed} cannot be reached by an unprivileged user; install the lab where others may read"
    )


def effective_capabilities() -> int:
    """This process's effective capabilities as a bit mask."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("CapEff:")[2].split()[0], 16)


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _is_open(path: Path) -> bool:
    """Whether anybody may reach and read it; a missing path hinders nobody."""
    real = path.resolve()
    if not real.exists():
        return True
    wanted = 0o5 if real.is_dir() else 0o4
    return real.stat().st_mode & wanted == wanted and all(p.stat().st_mode & 0o1 for p in real.parents)


def _is_mapped(uid: int) -> bool:
    """Whether this user number exists in our user namespace."""
    rows = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(first <= uid < first + count for first, _, count in rows)
