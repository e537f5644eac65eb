"""Clocks for tests: one tells how far the ledger has come, so that resumed runs tell the same; one skips sleep."""

from __future__ import annotations

import time
from pathlib import Path

START, STEP = 1_763_700_000.0, 7.0


class LedgerClock:
    """Seven seconds a line of the ledger, session lines not counted; sleeping takes no time and is noted."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self.slept: list[float] = []

    def now(self) -> float:
        content = self._ledger.read_bytes() if self._ledger.exists() else b""
        lines = [line for line in content.split(b"\n")[:-1] if b'"kind":"session"' not in line]
        return START + STEP * len(lines)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class SkippingClock:
    """The real time, but for sleeping, which takes none and counts all the same."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return time.time() + sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
