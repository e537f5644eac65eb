"""Processes below another one, and whether they end with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

GONE_SECONDS = 15.0
"""Within this long of the kill, nothing that the climb started may be left."""


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Every process below this one, with the time it began, so that a number used again is not taken for it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return
    for child in map(int, children):
        began = _began(child)
        if began:
            yield child, began
        yield from descendants(child)


def _began(pid: int) -> str:
    """When the process started; empty once it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def expect_gone(started: dict[int, str]) -> None:
    """Of what was there when the climb was killed."""
    deadline = time.monotonic() + GONE_SECONDS
    while left := [pid for pid, began in started.items() if _began(pid) == began]:
        assert time.monotonic() < deadline, f"still there: {[_command(pid) for pid in left]}"
        time.sleep(0.05)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "gone just now"
