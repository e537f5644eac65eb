"""Ctrl-C, SIGTERM, a closed terminal, a deadline: at once while the climb waits, else after the step in hand."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hillclimb.harness.errors import Interrupted, Stop

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEADLINE_SIGNAL = signal.SIGURG
"""Ends a system call that waits, and does nothing to a process that does not look for it."""


class Interrupts:
    """While entered, turns SIGINT, SIGTERM and SIGHUP into Interrupted, raised only at a `check` or where that is safe.

    A deadline raises the Stop that it was set with, in the same places. A SIGHUP that nohup has this process ignore
    stays ignored. Off the main thread, where Python takes no signals, it does nothing.
    """

    def __init__(self) -> None:
        self._pending: Stop | None = None
        self._is_interruptible = False
        self._timer: threading.Timer | None = None
        self._make_stop: Callable[[], Stop] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._note) for number in _SIGNALS if _counts(number)
            }
            self._before[_DEADLINE_SIGNAL] = signal.signal(_DEADLINE_SIGNAL, self._note_deadline)
        return self

    def __exit__(self, *_: object) -> None:
        self.clear_deadline()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def set_deadline(self, seconds: float, make_stop: Callable[[], Stop]) -> None:
        """From so many seconds on, raise what `make_stop` gives, once; replaces the deadline that was set before."""
        self.clear_deadline()
        if threading.current_thread() is not threading.main_thread() or seconds >= threading.TIMEOUT_MAX:
            return
        main = threading.main_thread().ident
        assert main is not None  # it runs
        self._make_stop = make_stop
        self._timer = threading.Timer(max(seconds, 0.0), lambda: signal.pthread_kill(main, _DEADLINE_SIGNAL))
        self._timer.daemon = True
        self._timer.start()

    def clear_deadline(self) -> None:
        """There is no deadline any more."""
        self._make_stop = None
        if not isinstance(self._pending, Interrupted):
            self._pending = None
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Raises Interrupted if a signal came since the last look, and a deadline's Stop if it passed."""
        if self._pending:
            stop, self._pending = self._pending, None
            raise stop

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside, nothing is half written: a signal or a deadline raises at once."""
        self._is_interruptible = True
        try:
            self.check()
            yield
        finally:
            self._is_interruptible = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending = Interrupted(f"interrupted by {signal.Signals(number).name}")
        if self._is_interruptible:
            self.check()

    def _note_deadline(self, number: int, frame: FrameType | None) -> None:
        if self._make_stop is None or self._pending:
            return
        self._pending, self._make_stop = self._make_stop(), None
        if self._is_interruptible:
            self.check()


def _counts(number: int) -> bool:
    return number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
