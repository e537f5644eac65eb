"""What a confined server prints: lines for whoever listens, so that the server never holds a terminal or a file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

MOST_BYTES = 64 << 20
"""Printed ones that are passed on; the rest is read and dropped."""

PIECE_BYTES = 1 << 16
DROPPED = "the server has printed 64 MiB; what it prints from here on is not shown"
END_SECONDS = 2.0


class Printed:
    """A pipe that is read, line by line, until all who could write to it are gone."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        """`hear` is called with each line, by a thread of its own."""
        self._hear = hear
        ours, self.descriptor = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(ours,), name="printed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close this process's end, and wait for the rest."""
        os.close(self.descriptor)
        self._thread.join(END_SECONDS)

    def _read(self, ours: int) -> None:
        left, rest = MOST_BYTES, b""
        with open(ours, "rb", buffering=0) as pipe:
            while piece := pipe.read(PIECE_BYTES):
                if left <= 0:
                    continue
                left -= len(piece)
                *lines, rest = (rest + piece).split(b"\n")
                if left <= 0 or len(rest) > PIECE_BYTES:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    self._hear(line.decode(errors="replace"))
                if left <= 0:
                    self._hear(DROPPED)
        if rest:
            self._hear(rest.decode(errors="replace"))
