"""Waiting for bubblewrap: for the first process of its namespaces, and until those are as they will stay."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from hillclimb.harness.errors import MachineError, SandboxError
from hillclimb.harness.sandbox.process import is_readable

START_SECONDS = 20.0
"""Setting the namespaces up takes 10 ms; a machine that needs this long is at fault."""

START_TIMEOUT_MESSAGE = f"bubblewrap started nothing in {START_SECONDS:g} s; is the machine overloaded?"


def read_init_pid(status: int) -> int:
    """Read the host pid of the namespace's first process from bubblewrap's status pipe; SandboxError without one."""
    text = b""
    deadline = time.monotonic() + START_SECONDS
    while b"\n" not in text:
        if not is_readable(status, deadline - time.monotonic()):
            raise MachineError(START_TIMEOUT_MESSAGE)
        piece = os.read(status, 4096)
        if not piece:
            raise SandboxError("bubblewrap ended before it started anything")
        text += piece
    return int(json.loads(text.splitlines()[0])["child-pid"])


def await_program(pid: int, handle: int, program: str) -> None:
    """Wait until a process has become this program; from then on its root folder is final.

    `handle` is its pidfd. SandboxError where it ends first.
    """
    name = Path(program).name[:15]  # as much as the kernel keeps
    deadline = time.monotonic() + START_SECONDS
    while Path(f"/proc/{pid}/comm").read_text().strip() != name:
        if is_readable(handle, 0):
            raise SandboxError(f"bubblewrap ended before {program} ran")
        if time.monotonic() > deadline:
            raise MachineError(START_TIMEOUT_MESSAGE)
        time.sleep(0.0002)
