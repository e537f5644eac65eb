"""Landlock through its three system calls: what a process and its children may open, from now on.

Kernel documentation: Documentation/userspace-api/landlock.rst. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from hillclimb.harness.channel.process_filter import renounce_privileges
from hillclimb.harness.sandbox.kernel import syscalls

READ = 1 << 0 | 1 << 2 | 1 << 3
"""Execute, read files, read folders."""

WRITE_FILE, TRUNCATE, IOCTL_DEVICE = 1 << 1, 1 << 14, 1 << 15
REFER = 1 << 13
CHANGE = WRITE_FILE | TRUNCATE | REFER | sum(1 << bit for bit in range(4, 13))
"""Write, truncate, link or rename across folders, remove and make entries of every kind."""

OF_FILES = 1 << 0 | WRITE_FILE | 1 << 2 | TRUNCATE | IOCTL_DEVICE
"""The rights that mean something for a file that is not a folder."""

TCP = 1 << 0 | 1 << 1
"""Bind and connect."""

SCOPES = 1 << 0 | 1 << 1
"""Abstract unix sockets and signals stay within."""


def abi_version() -> int:
    """The kernel's Landlock version; 0 where it has none or it is switched off."""
    return max(0, _call("landlock_create_ruleset", None, 0, 1))


def restrict(read: Iterable[str], write: Iterable[str], version: int) -> None:
    """Confine this process: `read` paths to read and execute, `write` paths to change as well, nothing else.

    Network and scopes are closed as far as `version` knows them. Missing paths are skipped. OSError when the
    kernel refuses.
    """
    handled = _handled(version)
    ruleset = _create(handled, version)
    for path in read:
        _allow(ruleset, path, READ)
    for path in write:
        _allow(ruleset, path, handled)
    renounce_privileges()
    _check(_call("landlock_restrict_self", ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _handled(version: int) -> int:
    """Every file right this version knows; what is handled and not allowed is refused."""
    unknown = (REFER if version < 2 else 0) | (TRUNCATE if version < 3 else 0)
    return (READ | CHANGE) & ~unknown | (IOCTL_DEVICE if version >= 5 else 0)


def _create(handled: int, version: int) -> int:
    """Make a ruleset; its attributes grew with the versions."""
    fields = [handled, TCP if version >= 4 else 0, SCOPES if version >= 6 else 0]
    known = 1 if version < 4 else 2 if version < 6 else 3
    attributes = struct.pack(f"={known}Q", *fields[:known])
    return _check(_call("landlock_create_ruleset", attributes, len(attributes), 0), "landlock_create_ruleset")


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(parent).st_mode):
        rights &= OF_FILES
    rule = struct.pack("=Qi", rights, parent)
    _check(_call("landlock_add_rule", ruleset, 1, rule, 0), f"landlock_add_rule {path}")
    os.close(parent)


def _call(name: str, *arguments: object) -> int:
    number = syscalls.number(name, syscalls.machine())
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result
