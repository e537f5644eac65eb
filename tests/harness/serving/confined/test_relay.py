"""Connections that are handed on: every byte, both ends, and what happens when either goes."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hillclimb.harness.serving.confined import relay as relay_module
from hillclimb.harness.serving.confined.relay import Relay
from hillclimb.harness.serving.server import listen_at, listen_on


@pytest.fixture(params=["port", "file"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    with listen_at("127.0.0.1", 0) if request.param == "port" else listen_on(tmp_path / "outer") as made:
        yield made


def connected(listening: socket.socket) -> socket.socket:
    end = socket.socket(listening.family)
    end.settimeout(10)
    end.connect(listening.getsockname())
    return end


def received(end: socket.socket) -> bytes:
    return b"".join(iter(lambda: end.recv(65536), b""))


def test_every_byte_comes_across_both_ways(listening: socket.socket, tmp_path: Path) -> None:
    data = [os.urandom(3_000_000 + at) for at in range(4)]

    def echo(inner: socket.socket) -> None:
        for _ in data:
            end, _ = inner.accept()
            threading.Thread(target=lambda end=end: (end.sendall(received(end)[::-1]), end.close())).start()

    with listen_on(tmp_path / "inner") as inner, Relay(listening) as relay:
        threading.Thread(target=echo, args=(inner,)).start()
        relay.start(tmp_path / "inner")
        ends = [connected(listening) for _ in data]
        for end, piece in zip(ends, data, strict=True):
            threading.Thread(
                target=lambda end=end, piece=piece: (end.sendall(piece), end.shutdown(1))
            ).start()
        for end, piece in zip(ends, data, strict=True):
            with end:
                assert received(end) == piece[::-1]


def test_who_hangs_up_is_gone_for_the_other(listening: socket.socket, tmp_path: Path) -> None:
    with listen_on(tmp_path / "inner") as inner, Relay(listening) as relay:
        relay.start(tmp_path / "inner")
        for closes_first in (0, 1):
            outer = connected(listening)
            end, _ = inner.accept()
            end.settimeout(10)
            pair = (outer, end)
            pair[closes_first].close()
            assert pair[1 - closes_first].recv(1) == b""
            pair[1 - closes_first].close()


def test_nobody_behind_it_ends_the_connection(listening: socket.socket, tmp_path: Path) -> None:
    with Relay(listening) as relay:
        relay.start(tmp_path / "none")
        with connected(listening) as end:
            assert end.recv(1) == b""


def test_who_is_left_by_the_server_is_left_alone_after_a_while(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "END_SECONDS", 0.2)
    with listen_on(tmp_path / "inner") as inner, Relay(listening) as relay:
        relay.start(tmp_path / "inner")
        clients = [connected(listening) for _ in range(20)]
        ends = [inner.accept()[0] for _ in clients]
        before = len(list(Path("/proc/self/fd").iterdir()))
        for end in ends:
            end.close()
        for client in clients:
            assert client.recv(1) == b""
        deadline = time.monotonic() + 10
        while len(list(Path("/proc/self/fd").iterdir())) > before - 60 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(list(Path("/proc/self/fd").iterdir())) <= before - 60, "20 of ours, and 40 of the relay's"
        for client in clients:
            client.close()


def test_connections_beyond_those_that_there_is_room_for_are_closed(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_most_connections", lambda: 2)
    with listen_on(tmp_path / "inner") as inner, Relay(listening) as relay:
        relay.start(tmp_path / "inner")
        kept = [connected(listening) for _ in range(2)]
        ends = [inner.accept()[0] for _ in kept]
        with connected(listening) as third, suppress(ConnectionError):
            assert third.recv(1) == b""
        kept[0].close()
        assert ends[0].recv(1) == b""
        ends[0].close()
        deadline = time.monotonic() + 10
        fourth = None
        while fourth is None and time.monotonic() < deadline:
            client = connected(listening)
            inner.settimeout(0.5)
            with suppress(TimeoutError):
                fourth = inner.accept()[0]
            client.close()
        assert fourth is not None
        for end in (kept[1], ends[1], fourth):
            end.close()


def test_open_connections_end_with_it(listening: socket.socket, tmp_path: Path) -> None:
    with listen_on(tmp_path / "inner") as inner:
        with Relay(listening) as relay:
            relay.start(tmp_path / "inner")
            outer = connected(listening)
            end, _ = inner.accept()
        assert outer.recv(1) == b"" and end.recv(1) == b""
        outer.close()
        end.close()
    assert listening.fileno() >= 0
