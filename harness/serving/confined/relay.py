"""Hands connections at one socket on to another, so that who answers them never holds the first."""

from __future__ import annotations

import os
import resource
import select
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

PIECE_BYTES = 1 << 16
OTHER_DESCRIPTORS = 64
"""Of this process, besides two for each connection."""

END_SECONDS = 2.0
"""For a client to end its side once it was answered to the end, and for connections at the end of the relay."""


class Relay:
    """From `start` until the end of the block. The socket stays the caller's."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._wake_read, self._wake_write = os.pipe()
        self._changed = threading.Condition()
        self._open: set[tuple[socket.socket, socket.socket]] = set()
        self._thread: threading.Thread | None = None

    def start(self, to: Path) -> None:
        """Take connections, and make one to the Unix socket `to` for each."""
        self._thread = threading.Thread(target=self._take, args=(to,), name="relay", daemon=True)
        self._thread.start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        os.close(self._wake_write)
        if self._thread is not None:
            self._thread.join()
            with self._changed:
                self._changed.wait_for(lambda: not self._open, END_SECONDS)
                for pair in self._open:
                    _break_off(*pair)
                self._changed.wait_for(lambda: not self._open, END_SECONDS)
        os.close(self._wake_read)

    def _take(self, to: Path) -> None:
        """Until the pipe is closed. Beyond those that there is room for a connection is closed at once."""
        self._listening.listen()
        poll = select.poll()
        for descriptor in (self._listening.fileno(), self._wake_read):
            poll.register(descriptor, select.POLLIN)
        while not any(descriptor == self._wake_read for descriptor, _ in poll.poll()):
            try:
                self._take_one(to)
            except OSError:  # the client is gone again, or this process has no descriptor left
                time.sleep(0.05)

    def _take_one(self, to: Path) -> None:
        client, _ = self._listening.accept()
        server = socket.socket(socket.AF_UNIX)
        with self._changed:
            is_taken = len(self._open) < _most_connections()
            if is_taken:
                self._open.add((client, server))
        if is_taken:
            threading.Thread(target=self._hand_on, args=(client, server, to), daemon=True).start()
        else:
            client.close()
            server.close()

    def _hand_on(self, client: socket.socket, server: socket.socket, to: Path) -> None:
        """One connection, to its end."""
        with suppress(OSError):
            server.connect(str(to))
            asking = threading.Thread(target=_pump, args=(client, server), daemon=True)
            asking.start()
            _pump(server, client)
            asking.join(END_SECONDS)
            _break_off(client, server)
            asking.join()
        with self._changed:
            self._open.remove((client, server))
            client.close()
            server.close()
            self._changed.notify_all()


def _pump(one: socket.socket, other: socket.socket) -> None:
    """All bytes of one direction, and its end; where the other side is gone, the rest is dropped."""
    with suppress(OSError):
        while piece := one.recv(PIECE_BYTES):
            other.sendall(piece)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def _break_off(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _most_connections() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(1000, (soft - OTHER_DESCRIPTORS) // 2))
