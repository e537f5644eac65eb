"""Messages between judge and candidate: one JSON object a packet, file descriptors beside it, nothing unpickled."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Sequence
from typing import Any

MAX_BYTES = 64 * 1024
"""Longest packet either side accepts."""


class WireError(Exception):
    """The other side sent something that is not one JSON object within the limit, or has gone away."""


class NotAMessageError(WireError):
    """The other side is there, and sent something else."""


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends that keep message borders."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Raises WireError when the other side is gone."""
    try:
        socket.send_fds(end, [json.dumps(message).encode()], list(descriptors))
    except OSError as error:
        raise WireError(f"cannot send: {error}") from error


def receive(end: socket.socket, most_descriptors: int = 0) -> tuple[dict[str, Any], list[int]]:
    """The next message. Raises WireError at the end of the stream, NotAMessageError for what is not one."""
    try:
        data, descriptors, flags, _ = socket.recv_fds(end, MAX_BYTES, most_descriptors)
    except OSError as error:
        raise WireError(f"cannot receive: {error}") from error
    message = None
    if not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) and data:
        message = _parse(data)
    if message is None:
        for descriptor in descriptors:
            os.close(descriptor)
        if not data:
            raise WireError("the stream ended")
        raise NotAMessageError(f"not a JSON object: {data[:80]!r}")
    return message, descriptors


def spin(end: socket.socket) -> None:
    """Return when something can be received, without ever sleeping."""
    poll = make_poll(end)
    while not poll.poll(0):
        pass


def make_poll(end: socket.socket) -> select.poll:
    """For something that can be received, or the other side's end."""
    poll = select.poll()
    poll.register(end, select.POLLIN | select.POLLHUP)
    return poll


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
