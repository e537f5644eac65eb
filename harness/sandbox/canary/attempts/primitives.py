"""Small deeds that several attempts are made of."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from errno import EPERM
from pathlib import Path

from hillclimb.harness.sandbox.kernel import seccomp, syscalls

UNFILTERED_CALLS = {"get_robust_list": (274, 100), "rt_sigqueueinfo": (129, 138), "tgkill": (234, 131)}
"""Calls that no filter names; their numbers on x86-64 and on aarch64."""


def can_open(path: str, flags: int) -> bool:
    with suppress(OSError):
        os.close(os.open(path, flags | os.O_NONBLOCK))
        return True
    return False


def can_create(path: str) -> bool:
    if not can_open(path, os.O_CREAT | os.O_WRONLY):
        return False
    Path(path).unlink()
    return True


def system_call(name: str, *arguments: object) -> int:
    machine = syscalls.machine()
    number = (
        UNFILTERED_CALLS[name][machine != "x86_64"]
        if name in UNFILTERED_CALLS
        else syscalls.number(name, machine)
    )
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *wide))


def reaches_kernel(name: str, *arguments: object) -> bool:
    """Whether a call came through to where its arguments are looked at, and found to be nonsense."""
    return system_call(name, *arguments) < 0 and ctypes.get_errno() != EPERM


def process_control(option: int, value: int) -> bool:
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def makes_a_socket(family: int) -> bool:
    kind = socket.SOCK_STREAM if family == socket.AF_VSOCK else socket.SOCK_SEQPACKET
    with suppress(OSError):
        socket.socket(family, socket.SOCK_RAW if family == socket.AF_PACKET else kind).close()
        return True
    return False


def succeeds_in_child(deed: Callable[[], object]) -> bool:
    """Do something that would change this process, in another one; as with attempts, False or an exception: in vain."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            done = deed() is not False
        finally:
            os._exit(0 if done else 1)
    return os.waitpid(child, 0)[1] == 0


def start_a_process_locked() -> bool:
    seccomp.forbid_processes()
    if os.fork() == 0:
        os._exit(0)
    return True


def is_open(number: int) -> bool:
    with suppress(OSError):
        os.fstat(number)
        return True
    return False
