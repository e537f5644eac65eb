"""Own time of every function on every thread, as Python's profile events tell it; runs in the candidate's process.

`sys.setprofile` sees one thread, and new threads take it from `threading.setprofile`, so threads that begin after
`adopt_threads` are seen as well. `cProfile` sees one thread up to Python 3.11 and mixes them from 3.12 on.

Covered: Python functions, functions in C, functions compiled by numba (one entry each; from Python 3.12 on their time
is their caller's). Not covered: what happens inside one call into compiled code, threads that such code starts for
itself (prange, OpenMP), and ufuncs and operators of NumPy, whose time is that of the function that uses them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from hillclimb.harness.channel.profile_limits import MAX_KEPT, MAX_NAME_CHARS, MAX_ROWS, REST, UNNAMEABLE
from hillclimb.harness.channel.row_names import WORKERS, row_name

ProfileRow = tuple[str, float, float, float]
"""Name, share, seconds per call, entries per call: as in hillclimb.harness.records.Bucket."""

FunctionKey = int | tuple[str | None, str]
"""A code object's id, or module and name of a function in C. Hashing the objects themselves is slow."""

MIN_SHARE = 0.005
"""Rows below it are added up."""

NOTHING_KEPT: frozenset[str] = frozenset()

WAITING = "waiting for other threads"
WAITS = {"lock.acquire", "lock.__enter__", "RLock.acquire", "RLock.__enter__", "SimpleQueue.get"}


class Recorder:
    """One thread's own times in nanoseconds and its entries, while `recording`."""

    def __init__(self) -> None:
        self.recording = False
        self.own: dict[FunctionKey, int] = {}
        self.entries: dict[FunctionKey, int] = {}
        self.functions: dict[FunctionKey, Any] = {}
        """The code object, or the object whose method in C it is, by key; kept, so that ids stay taken."""
        self._stack: list[FunctionKey] = []
        self._last = 0

    def begin(self) -> None:
        self.own, self.entries, self._stack = defaultdict(int), defaultdict(int), []
        self._last = time.perf_counter_ns()
        self.recording = True

    def record(self, frame: FrameType, event: str, argument: Any) -> None:
        """One event, as sys.setprofile tells it: what ran since the last one gets the time in between."""
        if not self.recording:
            return
        elapsed = time.perf_counter_ns() - self._last
        key = self._key(frame.f_code, argument if event.startswith("c_") else None)
        stack = self._stack
        if event in ("call", "c_call"):
            if stack:
                self.own[stack[-1]] += elapsed
            stack.append(key)
            self.entries[key] += 1
        else:  # with nothing on the stack it was entered before the recording began
            self.own[stack.pop() if stack else key] += elapsed
        self._last = time.perf_counter_ns()

    def _key(self, code: CodeType, builtin: Any) -> FunctionKey:
        key: FunctionKey
        if builtin is None:
            key = id(code)
            self.functions[key] = code
            return key
        key = (builtin.__module__, builtin.__qualname__)
        if key not in self.functions:
            self.functions[key] = type(getattr(builtin, "__self__", None)).__module__
        return key


class Profiler:
    """The process's recorders: the main thread's, and one for every thread adopted."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._main = Recorder()
        self._others: list[Recorder] = []
        self._alive = 0
        self._recording = False

    def adopt_threads(self) -> None:
        """See the threads that begin from here on. They cost an idle function call an event until `measure`."""
        threading.setprofile(self._adopt)

    def measure(
        self, work: Callable[[], int], calls: int, kept: frozenset[str] = NOTHING_KEPT
    ) -> list[ProfileRow]:
        """Rows of `work`, which calls the kernel `calls` times and returns its nanoseconds; largest share first.

        Before them stand the workspace's own functions called as one of `kept`, however small.
        """
        self._alive = max(1, threading.active_count() - 1)
        for recorder in (self._main, *self._others):
            recorder.begin()
        self._recording = True
        sys.setprofile(self._main.record)
        try:
            wall = work()
        finally:
            sys.setprofile(None)
            self._recording = False
            for recorder in (self._main, *self._others):
                recorder.recording = False
        return self._rows(max(wall, 1), calls, kept)

    def _adopt(self, frame: FrameType, event: str, argument: Any) -> None:
        """A new thread's first event: it gets a recorder of its own."""
        recorder = Recorder()
        if self._recording:
            recorder.begin()
        self._others.append(recorder)
        self._alive = max(self._alive, threading.active_count() - 1)
        sys.setprofile(recorder.record)

    def _rows(self, wall: int, calls: int, kept: frozenset[str]) -> list[ProfileRow]:
        workers = [recorder for recorder in self._others if recorder.own]
        own_rows = self._own_rows(kept)
        rows = [
            (name, min(1.0, own / wall), own / calls / 1e9, entries / calls)
            for name, own, entries in self._total([self._main])
        ]
        if workers:
            rows += _of_workers(self._total(workers), self._alive * wall, wall / calls / 1e9, calls)
        return largest(rows, own_rows)

    def _own_rows(self, kept: frozenset[str]) -> frozenset[str]:
        """Names of rows of functions of the workspace, or of a library, that are called as one of these."""
        recorders = (self._main, *self._others)
        functions = [function for one in recorders for function in list(one.functions.values())]
        codes = {id(code): code for code in functions if isinstance(code, CodeType) and code.co_name in kept}
        places = {id(code): Path(code.co_filename) for code in codes.values()}
        return frozenset(
            self._code_name(code)
            for code in codes.values()
            if places[id(code)].is_relative_to(self._workspace) or places[id(code)].suffix == ".so"
        )

    def _code_name(self, code: CodeType) -> str:
        return row_name(self._place(code.co_filename), code.co_name)

    def _total(self, recorders: Iterable[Recorder]) -> list[tuple[str, int, int]]:
        """Name, nanoseconds and entries."""
        own: dict[str, int] = defaultdict(int)
        entries: dict[str, int] = defaultdict(int)
        for recorder in recorders:
            for key, nanoseconds in list(recorder.own.items()):
                name = self._name(key, recorder.functions[key])
                own[name] += nanoseconds
                entries[name] += recorder.entries.get(key, 0)
        return [(name, nanoseconds, entries[name]) for name, nanoseconds in own.items()]

    def _name(self, key: FunctionKey, function: Any) -> str:
        if isinstance(function, CodeType):
            return self._code_name(function)
        assert isinstance(key, tuple)
        name = WAITING if key[1] in WAITS else f"{key[0] or function}.{key[1]}"
        return UNNAMEABLE.sub("?", name)[: MAX_NAME_CHARS - len(WORKERS)]

    def _place(self, filename: str) -> str:
        """A path relative to the workspace, or to where it would be imported from."""
        path = Path(filename)
        places = [Path(entry) for entry in (self._workspace, *sys.path) if path.is_relative_to(entry)]
        nearest = max(places, key=lambda place: len(place.parts), default=path.parent)
        return path.relative_to(nearest).as_posix()


def _of_workers(
    totals: Iterable[tuple[str, int, int]], available: int, seconds_per_call: float, calls: int
) -> Iterator[ProfileRow]:
    """Rows by the mean over as many threads as lived at a time, of the `available` nanoseconds of all.

    They wait when they do nothing else: a wait that began before the recording would be told too long.
    """
    idle = 1.0
    for name, own, entries in totals:
        if name != WAITING:
            share = min(idle, own / available)
            idle -= share
            yield name + WORKERS, share, share * seconds_per_call, entries / calls
    yield WAITING + WORKERS, idle, idle * seconds_per_call, 0.0


def largest(rows: list[ProfileRow], kept: frozenset[str] = NOTHING_KEPT) -> list[ProfileRow]:
    """The largest shares, after functions that are kept; the rest of each kind of thread as one row at the end."""

    def is_kept(row: ProfileRow) -> bool:
        return row[0].removesuffix(WORKERS) in kept

    rows = sorted(rows, key=lambda row: -row[1])
    first = [row for row in rows if is_kept(row)][:MAX_KEPT]
    others = [row for row in rows if not is_kept(row)]
    shown = first + [row for row in others if row[1] >= MIN_SHARE][: MAX_ROWS - 2]
    left = others[len(shown) - len(first) :]
    of_workers = [row for row in left if row[0].endswith(WORKERS)]
    of_main = [row for row in left if not row[0].endswith(WORKERS)]
    rest = [_sum(REST, of_main), _sum(REST + WORKERS, of_workers)]
    return [*shown, *(row for row in rest if row[1] >= MIN_SHARE)]


def _sum(name: str, rows: Iterable[ProfileRow]) -> ProfileRow:
    shares, seconds, entries = zip((0.0, 0.0, 0.0), *(row[1:] for row in rows), strict=True)
    return name, min(1.0, sum(shares)), sum(seconds), sum(entries)
