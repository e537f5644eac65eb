"""A server that listens until it is asked to end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from hillclimb.harness.errors import UsageError
from hillclimb.harness.serving.app import create_app
from hillclimb.harness.serving.backend import Backend

QUEUE = 2048
"""Connections that wait to be taken."""


def listen_at(host: str, port: int) -> socket.socket:
    """A socket that is bound; port 0 for any free one. Raises UsageError where it cannot be."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=QUEUE)
    except OSError as error:
        raise UsageError(
            f"cannot listen at {host}:{port}: {error.strerror or error}; choose another --port"
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
            f"cannot listen on {path}: {error.strerror or error}; remove it, or choose another"
        ) from None
    return listening


def serve(backend: Backend, listening: socket.socket, tell: Callable[[], None] = lambda: None) -> None:
    """Answer until SIGINT or SIGTERM; `tell` is called when requests are taken. Closes the socket."""
    server = _Server(uvicorn.Config(create_app(backend), log_level="warning", lifespan="on"), tell)
    with listening:
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, tell: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell()
