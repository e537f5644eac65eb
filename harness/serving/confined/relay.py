"""Hands connections at one socket on to another, so that who answers them never holds the first."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType

PIECE_BYTES = 1 << 16
END_SECONDS = 2.0
"""For connections to end by themselves, once those who answer them are gone."""


class Relay:
    """From `start` until the end of the block. The socket stays the caller's."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self._thread: threading.Thread | None = None

    def start(self, to: Path) -> None:
        """Take connections, and make one to the Unix socket `to` for each."""
        self._thread = threading.Thread(target=self._run, args=(to,), name="relay", daemon=True)
        self._thread.start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join()
        self._loop.close()

    def _run(self, to: Path) -> None:
        self._loop.run_until_complete(self._serve(to))

    async def _serve(self, to: Path) -> None:
        server = await asyncio.start_server(partial(_hand_on, to), sock=self._listening.dup())
        await self._is_over.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            _, left = await asyncio.wait(others, timeout=END_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


async def _hand_on(to: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, to its end."""
    try:
        their_reader, their_writer = await asyncio.open_unix_connection(str(to))
    except OSError:
        writer.close()
        return
    with suppress(asyncio.CancelledError):
        await asyncio.gather(_pump(reader, their_writer), _pump(their_reader, writer))
    for end in (writer, their_writer):
        end.transport.abort()
    await asyncio.sleep(0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All bytes of one direction; where the other side is gone, the rest is dropped."""
    with suppress(ConnectionError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()
