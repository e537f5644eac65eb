"""Attempts to find more than was given: variables, descriptors, capabilities, memory."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

from hillclimb.harness.sandbox.canary.attempts.bait import Attempt, Bait
from hillclimb.harness.sandbox.canary.attempts.primitives import (
    is_open,
)


def find_a_variable_of_the_judges(bait: Bait) -> bool:
    """Among those set now, and those the process was started with."""
    named = set(os.environ)
    with suppress(OSError):
        started = Path("/proc/self/environ").read_bytes().split(b"\0")
        named |= {variable.partition(b"=")[0].decode() for variable in started if variable}
    return bool(named - set(bait.variables))


def find_a_descriptor_of_the_judges(bait: Bait) -> bool:
    return any(is_open(number) for number in set(range(1024)) - {0, 1, 2, *bait.descriptors})


def hold_a_capability(bait: Bait) -> bool:
    """In any set; in a user namespace of our own, not even for a program to come."""
    status = Path("/proc/self/status").read_text()
    sets = ["CapInh", "CapPrm", "CapEff", "CapAmb", *(["CapBnd"] if "user" in bait.namespaces else [])]
    held = [int(status.partition(f"{name}:")[2].split()[0], 16) for name in sets]
    return any(capabilities & ~bait.capabilities for capabilities in held)


def gain_privileges_by_exec(bait: Bait) -> bool:
    return "NoNewPrivs:\t1" not in Path("/proc/self/status").read_text()


def take_more_memory(bait: Bait) -> None:
    mmap.mmap(-1, bait.memory_bytes + 4096, flags=mmap.MAP_PRIVATE).close()


def grow_a_file_without_bound(bait: Bait) -> None:
    with Path("grown").open("wb") as file:
        file.truncate(bait.scratch_bytes + 4096)


def fill_the_scratch_without_bound(bait: Bait) -> bool:
    if not bait.scratch_is_bounded:
        return False
    for name in ("first", "second"):
        Path(name).write_bytes(bytes(bait.scratch_bytes // 4 * 3))
    return True


ATTEMPTS: tuple[Attempt, ...] = (
    find_a_variable_of_the_judges,
    find_a_descriptor_of_the_judges,
    hold_a_capability,
    gain_privileges_by_exec,
    take_more_memory,
    grow_a_file_without_bound,
    fill_the_scratch_without_bound,
)
