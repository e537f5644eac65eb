"""Counts of lanes and loop trips, by kernel, file and line, in the form that the judge is sent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Literal

from hillclimb.harness.channel.profile_limits import (
    MAX_ACCESSES,
    MAX_FILES,
    MAX_KERNELS,
    MAX_LOOPS,
    MAX_NAME_CHARS,
    UNNAMEABLE,
)

AccessKind = Literal["load", "store", "atomic"]

SourceLine = tuple[int, str, int]
"""Number of the kernel, file and line."""

OUTSIDE_WORKSPACE = "elsewhere"
"""The file of an access that no line of the workspace makes."""


@dataclass
class KernelCount:
    """One kernel that was launched."""

    name: str
    file: str
    line: int
    """Of its def."""
    launches: int = 0
    programs: int = 0


@dataclass
class AccessCount:
    """Every access of one kind by one line."""

    runs: int = 0
    lanes: int = 0
    live: int = 0
    """Lanes not masked off."""
    bytes: int = 0

    def add(self, other: AccessCount) -> None:
        self.runs += 1
        self.lanes += other.lanes
        self.live += other.live
        self.bytes += other.bytes


@dataclass
class LoopCount:
    """One loop statement."""

    entries: int = 0
    trips: int = 0
    fewest: int = 0
    most: int = 0

    def add(self, trips: int) -> None:
        self.fewest = min(self.fewest, trips) if self.entries else trips
        self.most = max(self.most, trips)
        self.entries += 1
        self.trips += trips


@dataclass
class LoopEntry:
    """One time that a loop is reached: its statement stands in a `with` block of this."""

    loop: LoopCount
    trips: int = 0

    def step(self) -> None:
        self.trips += 1

    def __enter__(self) -> LoopEntry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.loop.add(self.trips)


@dataclass
class LaneTally:
    """What was counted so far, by lines of files below `workspace`."""

    workspace: str
    kernels: list[KernelCount] = field(default_factory=list)
    accesses: dict[tuple[SourceLine, AccessKind], AccessCount] = field(default_factory=dict)
    loops: dict[SourceLine, LoopCount] = field(default_factory=dict)
    _numbers: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _files: dict[str, str | None] = field(default_factory=dict)
    _running: int | None = None
    """Number of the kernel that is being interpreted; None between launches."""
    _open: AccessCount | None = None

    def file(self, path: str) -> str | None:
        """A path relative to the workspace; None where it is not below it."""
        if path not in self._files:
            inside = Path(path).is_relative_to(self.workspace)
            self._files[path] = Path(path).relative_to(self.workspace).as_posix() if inside else None
        return self._files[path]

    @contextmanager
    def launch(self, code: CodeType) -> Iterator[None]:
        """While a kernel's programs run, one after the other."""
        key = code.co_name, self.file(code.co_filename) or OUTSIDE_WORKSPACE, code.co_firstlineno
        if key not in self._numbers:
            self._numbers[key] = len(self.kernels)
            self.kernels.append(KernelCount(*key))
        outer, self._running = self._running, self._numbers[key]
        self.kernels[self._running].launches += 1
        try:
            yield
        finally:
            self._running = outer

    def programs(self, count: int) -> None:
        """So many programs are launched of the kernel that is running."""
        if self._running is not None:
            self.kernels[self._running].programs += count

    @contextmanager
    def access(self, kind: AccessKind) -> Iterator[AccessCount]:
        """While one access is made; an access within another is part of it."""
        if self._open is not None:
            yield self._open
            return
        place = self._place(sys._getframe(2))
        self._open = AccessCount()
        try:
            yield self._open
        finally:
            made, self._open = self._open, None
        if place is not None:
            self.accesses.setdefault((place, kind), AccessCount()).add(made)

    def enter(self, file: str, line: int) -> LoopEntry:
        """A loop is reached."""
        if self._running is None:
            return LoopEntry(LoopCount())
        return LoopEntry(self.loops.setdefault((self._running, file, line), LoopCount()))

    def to_json(self) -> dict[str, Any]:
        """Everything as plain numbers and names, in the order of the lines; where there is too much, the largest.

        kernels   name, number of its file, line, launches, programs
        accesses  number of the kernel, number of the file, line, kind, runs, lanes, masked off, useful bytes
        loops     number of the kernel, number of the file, line, entries, trips, fewest and most of an entry
        left_out  rows that there was no room for
        """
        files: list[str] = []
        kernels = [
            [_shown(k.name), _number(files, k.file), k.line, k.launches, k.programs] for k in self.kernels
        ]
        accesses = [
            [kernel, _number(files, file), line, kind, a.runs, a.lanes, a.lanes - a.live, a.bytes]
            for ((kernel, file, line), kind), a in sorted(self.accesses.items())
        ]
        loops = [
            [kernel, _number(files, file), line, loop.entries, loop.trips, loop.fewest, loop.most]
            for (kernel, file, line), loop in sorted(self.loops.items())
        ]
        return _fitting(
            {
                "files": [_shown(file) for file in files],
                "kernels": kernels,
                "accesses": accesses,
                "loops": loops,
            }
        )

    def _place(self, frame: FrameType | None) -> SourceLine | None:
        """The innermost line of the workspace among the callers; None where no kernel is running."""
        if self._running is None:
            return None
        while frame is not None:
            if (file := self.file(frame.f_code.co_filename)) is not None:
                return self._running, file, frame.f_lineno
            frame = frame.f_back
        return self._running, OUTSIDE_WORKSPACE, 0


def _number(known: list[str], file: str) -> int:
    if file not in known:
        known.append(file)
    return known.index(file)


def _fitting(told: dict[str, Any]) -> dict[str, Any]:
    """The rows that there is room for: those of the first kernels and files, and of them the largest."""
    accesses, loops = (
        [row for row in told[rows] if row[0] < MAX_KERNELS and row[1] < MAX_FILES]
        for rows in ("accesses", "loops")
    )
    shown = {
        "files": told["files"][:MAX_FILES],
        "kernels": told["kernels"][:MAX_KERNELS],  # whose files are the first
        "accesses": sorted(sorted(accesses, key=lambda row: -row[5])[:MAX_ACCESSES]),
        "loops": sorted(sorted(loops, key=lambda row: -row[4])[:MAX_LOOPS]),
    }
    left_out = sum(len(told[rows]) - len(shown[rows]) for rows in ("kernels", "accesses", "loops"))
    return {**shown, "left_out": left_out}


def _shown(name: str) -> str:
    return UNNAMEABLE.sub("?", name)[:MAX_NAME_CHARS] or "?"
