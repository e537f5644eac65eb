"""A fake OpenAI: a real HTTP server on loopback that answers by a script, and keeps every request it got.

In a test:

    with openai_server([answer("IDEA: ..."), fault("drip")]) as server:
        ... OPENAI_BASE_URL=server.base_url ...
        assert server.requests[0].body["model"] == "fake-1"

A script is a list of turns (texts count as answers; the last one is repeated) or a function of the request. It is read
anew for each request, so `server.script` may be replaced while it runs.

As a program:

    python -m tests.fakes.openai_server --port 0 --script FILE [--log FILE]

prints its base URL and serves until it is killed. FILE is JSON, a list of turns (see `openai_turns.turn`), or Python
with a `script` in it, list or function.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.fakes.openai_turns import FAULTS, Asked, Script, Turn, answer, error, fault, picky, turn

__all__ = ["FAULTS", "Asked", "FakeOpenAI", "Turn", "answer", "error", "fault", "openai_server", "picky"]

Scripted = Script | Sequence[Turn | str | Mapping[str, Any]]


class FakeOpenAI(ThreadingHTTPServer):
    """Listens from construction on; `with` it to serve."""

    daemon_threads = False  # closing waits for every handler, so that nothing outlives a test
    request_queue_size = 64

    def __init__(self, script: Scripted, port: int = 0, log: Path | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.script = script
        self.requests: list[Asked] = []
        """Chat requests, in the order in which they came."""
        self.others: list[Asked] = []
        """Any other request."""
        self.troubles: list[BaseException] = []
        """What broke in the script or the server itself; raised when the server closes."""
        self.closing = threading.Event()
        self._log, self._lock = log, threading.Lock()
        self._open: set[socket.socket] = set()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def note(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Asked:
        """Keep a request; chat requests get their number."""
        with self._lock:
            chat = method == "POST" and path.endswith("/chat/completions")
            asked = Asked(len(self.requests) + 1 if chat else 0, method, path, headers, body)
            (self.requests if chat else self.others).append(asked)
            if self._log:
                with self._log.open("a") as lines:
                    lines.write(json.dumps(vars(asked)) + "\n")
        return asked

    def choose(self, asked: Asked) -> Turn:
        """What the script has for this request."""
        if callable(self.script):
            return self.script(asked)
        chosen = self.script[min(asked.count, len(self.script)) - 1]
        return chosen if isinstance(chosen, Turn) else turn(chosen)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        with self._lock:
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what it is here for; they are no news."""

    def end(self) -> None:
        """Every wait ends, every connection is shut, every thread is joined."""
        self.closing.set()
        self.shutdown()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes; 40 ms between them otherwise
    server: FakeOpenAI

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing; requests are kept."""

    def do_GET(self) -> None:
        asked = self._note(None)
        models = [{"id": "fake-1", "object": "model", "created": 1, "owned_by": "nobody"}]
        listing = Turn(body={"object": "list", "data": models})
        self._perform(listing if self.path.endswith("/models") else error(404, "Not found"), asked)

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        data = self.rfile.read(length)
        if len(data) < length:  # the client went away in the middle of its request
            self.close_connection = True
            return
        asked = self._note(json.loads(data) if data else None)
        self._perform(self._choose(asked) if asked.count else error(404, "Not found"), asked)

    def send(self, data: bytes) -> None:
        """Stage: bytes as they are."""
        self.close_connection = True
        self.wfile.write(data)

    def wait(self, seconds: float) -> None:
        """Stage: until then, or until the server closes."""
        if self.server.closing.wait(seconds):
            raise ConnectionAbortedError("the server closes")

    def cut(self) -> None:
        """Stage: end the connection where it stands."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _note(self, body: Any) -> Asked:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return self.server.note(self.command, self.path, headers, body)

    def _choose(self, asked: Asked) -> Turn:
        try:
            return self.server.choose(asked)
        except Exception as trouble:  # noqa: BLE001 - the test's own script; raised again when the server closes
            self.server.troubles.append(trouble)
            return error(500, "the script broke")

    def _perform(self, turn: Turn, asked: Asked) -> None:
        with contextlib.suppress(OSError):  # the client went away
            if turn.delay:
                self.wait(turn.delay)
            if turn.play:
                turn.play(self, asked)
            else:
                self._answer(turn, asked)

    def _answer(self, turn: Turn, asked: Asked) -> None:
        body = turn.encoded(asked)
        self.send_response(turn.status)
        self.send_header("content-type", turn.kind)
        for name, value in turn.fields(asked).items():
            self.send_header(name, value)
        if turn.status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        for part in [body] if not turn.pace else [body[i : i + 1] for i in range(len(body))]:
            self.wfile.write(part)
            if turn.pace:
                self.wait(turn.pace)


@contextlib.contextmanager
def openai_server(script: Scripted, port: int = 0, log: Path | None = None) -> Iterator[FakeOpenAI]:
    """Serve a script while the block runs; what broke in a script function is raised at its end."""
    server = FakeOpenAI(script, port, log)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="fake OpenAI")
    thread.start()
    try:
        yield server
    finally:
        server.end()
        thread.join()
    if server.troubles:
        raise server.troubles[0]


def read_script(path: Path) -> Scripted:
    """A script out of a file, see above."""
    if path.suffix == ".py":
        return runpy.run_path(str(path))["script"]
    return [turn(spec) for spec in json.loads(path.read_text())]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="A fake OpenAI server on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--script", type=Path, required=True, help="JSON or Python, see the module's docstring"
    )
    parser.add_argument("--log", type=Path, help="one JSON line a request, the key included")
    given = parser.parse_args()
    server = FakeOpenAI(read_script(given.script), given.port, given.log)
    print(server.base_url, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
