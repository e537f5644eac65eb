"""Ctrl-C, SIGTERM, a closed terminal: at once while the climb waits for something, else after the step in hand."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from harness.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, turns SIGINT, SIGTERM and SIGHUP into Interrupted, raised only at a `check` or inside a `window`.

    A SIGHUP that nohup has this process ignore stays ignored. Off the main thread, where Python takes no signals, it
    does nothing.
    """

    def __init__(self) -> None:
        self._asked = ""
        self._waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._note) for number in _SIGNALS if _counts(number)
            }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises Interrupted if a signal came since the last look."""
        if self._asked:
            asked, self._asked = self._asked, ""
            raise Interrupted(asked)

    @contextmanager
    def window(self) -> Iterator[None]:
        """Inside, nothing is half written: a signal raises Interrupted at once."""
        self._waiting = True
        try:
            self.check()
            yield
        finally:
            self._waiting = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = f"interrupted by {signal.Signals(number).name}"
        if self._waiting:
            self.check()


def _counts(number: int) -> bool:
    return number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
