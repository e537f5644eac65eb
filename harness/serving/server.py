"""A server that listens until it is asked to end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from hillclimb.harness.errors import UsageError
from hillclimb.harness.serving.app import create_app
from hillclimb.harness.serving.backends.backend import Backend
from hillclimb.harness.serving.engine import Engine
from hillclimb.harness.serving.service import Service

QUEUE = 2048
"""Connections that wait to be taken."""

GRACE_SECONDS = 3
"""For clients to read what they are told when the server ends."""


def listen_at(host: str, port: int) -> socket.socket:
    """A socket that is bound; port 0 for any free one. Raises UsageError where it cannot be."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=QUEUE)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"cannot listen at {host}:{port}: {error}; choose another --port or --host"
        ) from None


def listen_on(path: Path) -> socket.socket:
    """A Unix socket that is bound there. Raises UsageError where it cannot be."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(path))
        listening.listen(QUEUE)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"cannot listen on {path}: {error.strerror or error}; choose another place, or remove what is there"
        ) from None
    return listening


def serve(backend: Backend, listening: socket.socket, tell: Callable[[], None] = lambda: None) -> None:
    """Answer until SIGINT or SIGTERM; `tell` is called when requests are taken. Closes the socket.

    Answers under way fail then. Raises KeyboardInterrupt after SIGINT. Spoken is HTTP as h11 has it, whatever else is
    installed: httptools answers in chunks to who asks by HTTP/1.0, and takes those for a body without an end.
    """
    service = Service(backend)
    settings = uvicorn.Config(
        create_app(service), http="h11", log_level="warning", timeout_graceful_shutdown=GRACE_SECONDS
    )
    try:
        with listening:
            _Server(settings, service.engine, tell).run(sockets=[listening])
    finally:
        service.engine.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, engine: Engine, tell: Callable[[], None]) -> None:
        super().__init__(config)
        self._engine, self._tell = engine, tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers under way fail first, for a server waits for them to end."""
        await asyncio.to_thread(self._engine.close)
        await super().shutdown(sockets)
