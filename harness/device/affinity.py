"""Which CPU cores a duel's processes run on: where the system happened to put one is no difference between two sides.

A process mostly stays where it was first put, so that how far that is from the judge, and from the GPU, is told by the
judge's clock for the whole of the process's life.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

TOPOLOGY_FOLDER = Path("/sys/devices/system/cpu")

MIN_CORES = 4
"""Cores of which two can be chosen, and others be left to whatever else runs."""

Core = tuple[int, ...]
"""The CPUs (hardware threads) of one physical core."""


def list_cores(cpus: Collection[int], topology: Path = TOPOLOGY_FOLDER) -> list[Core]:
    """The physical cores of these CPUs, in order; where the system does not say, every CPU is one."""
    cores = {tuple(sorted(set(_siblings(topology, cpu)) & set(cpus))) for cpu in cpus}
    return sorted(cores)


def cores_of_judge(cores: Sequence[Core], index: int, count: int) -> list[Core]:
    """The cores of the judge of one of `count` GPUs; none where they are too few to choose among."""
    mine = list(cores[index::count])
    return mine if len(mine) >= MIN_CORES else []


@contextmanager
def pinned(cores: Sequence[Core], pids: Sequence[int]) -> Iterator[None]:
    """This thread on one of the cores, the main threads of `pids` together on another; other processes, other seats.

    This thread is let go at the end; the others keep their place, and find it again in a duel within the duel. Where
    the system does not permit it, nothing is done.
    """
    before = os.sched_getaffinity(0)
    if cores:
        ours, theirs = random.Random(repr(pids)).sample(cores, 2)
        for pid in pids:
            _seat(pid, theirs)
        _seat(0, ours)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def unpinned(cores: Sequence[Core], pids: Sequence[int]) -> Iterator[None]:
    """The main threads of `pids` on any of the cores, and at the end back on their seats: while all of them work."""
    seats = {pid: cpus for pid in pids if cores and (cpus := _allowed(pid))}
    for pid in seats:
        _allow(pid, {cpu for core in cores for cpu in core})
    try:
        yield
    finally:
        for pid, seat in seats.items():
            _allow(pid, seat)


def _seat(pid: int, core: Core) -> None:
    """On the core's first CPU; its other one is nobody's, but for whom the system puts there."""
    _allow(pid, core[:1])


def _allow(pid: int, cpus: Collection[int]) -> None:
    with suppress(OSError):
        os.sched_setaffinity(pid, cpus)


def _allowed(pid: int) -> Collection[int]:
    """None of a process that has ended."""
    with suppress(OSError):
        return os.sched_getaffinity(pid)
    return ()


def _siblings(topology: Path, cpu: int) -> list[int]:
    try:
        told = (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        return [n for part in told.strip().split(",") for n in range(*_bounds(part))]
    except (OSError, ValueError):
        return [cpu]


def _bounds(part: str) -> tuple[int, int]:
    """Of `3` or `2-5`, as range takes them."""
    first, _, last = part.partition("-")
    return int(first), int(last or first) + 1
