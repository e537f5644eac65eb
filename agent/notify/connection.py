"""HTTP connections that can be ended from another thread, whatever they wait for: a handshake, a header, a body.

A read timeout starts anew with every byte, so a reply that drips would hold a request for ever.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any

from requests import Session
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class AbortableConnection:
    """The connection of one request. Its own handle on it outlives what a library wraps around it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handles: list[socket.socket] = []
        self._is_aborted = False

    def attach(self, connection: socket.socket) -> None:
        """Hold on to a connection that was just made."""
        handle = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._handles.append(handle)
            if self._is_aborted:
                _shut(handle)

    def abort(self) -> None:
        """End it now; whoever reads from it is woken."""
        with self._lock:
            self._is_aborted = True
            for handle in self._handles:
                _shut(handle)

    @property
    def is_aborted(self) -> bool:
        """Whether it was ended from here."""
        return self._is_aborted

    def close(self) -> None:
        """Give up the handles."""
        with self._lock:
            handles, self._handles = self._handles, []
        for handle in handles:
            handle.close()


def open_session(line: AbortableConnection) -> Session:
    """A session whose connections are the line's, through a proxy too, and which prints nothing of them."""
    session = Session()
    pools = _pools(line)

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
            manager = super().proxy_manager_for(*arguments, **options)
            manager.pool_classes_by_scheme = pools
            return manager

    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter())
    return session


def _pools(line: AbortableConnection) -> dict[str, Any]:
    class Plain(HTTPConnection):
        debuglevel = 0  # or http.client prints the path

        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            line.attach(made)
            return made

    class Secure(HTTPSConnection):
        debuglevel = 0

        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            line.attach(made)
            return made

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _shut(handle: socket.socket) -> None:
    with suppress(OSError):
        handle.shutdown(socket.SHUT_RDWR)
