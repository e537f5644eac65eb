"""A Discord webhook on loopback that behaves as scripted, request by request, and keeps what it is sent.

As a program it prints its URL, then one JSON line a request: `python -m tests.fakes.discord_server 429 204`.
The last behaviour of the script repeats.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ID, TOKEN = "1234567890123456789", "loopback-token-that-nobody-may-see-0123456789"


@dataclass(frozen=True)
class Reply:
    """What one request is answered, and how."""

    status: int
    body: bytes = b""
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    wait: float = 0.0
    """Seconds before the first byte."""
    drip: float = 0.0
    """Seconds between two bytes, headers included; 0 sends all at once."""
    drip_body_only: bool = False
    cut_after: int | None = None
    """Bytes after which the connection is closed."""


def _json(status: int, said: object, *headers: tuple[str, str]) -> Reply:
    return Reply(status, json.dumps(said).encode(), headers=headers)


def limited(seconds: float, *, header: float | None = None) -> Reply:
    """Discord's own rate limit; the header holds whole seconds, as there."""
    said = {"message": "You are being rate limited.", "retry_after": seconds, "global": False}
    return _json(429, said, ("Retry-After", f"{header if header is not None else max(1, round(seconds)):g}"))


def banned(seconds: float | None) -> Reply:
    """Cloudflare's, in front of Discord: plain text."""
    headers = (("Retry-After", f"{seconds:g}"),) if seconds is not None else ()
    return Reply(429, b"error code: 1015", "text/plain", headers)


def emptied(seconds: float) -> Reply:
    """Taken, but the bucket is empty now."""
    headers = (("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset-After", f"{seconds:g}"))
    return Reply(204, headers=headers)


_PAGE = b"<!doctype html><title>bad gateway</title>"
TAKEN = _json(200, {"id": "1", "attachments": []})
REPLIES: dict[str, Reply] = {
    "204": Reply(204),
    "200": TAKEN,
    "slow": Reply(204, wait=0.4),
    "hang": Reply(204, wait=3600.0),
    "drip": Reply(200, b'{"id": "1"}', drip=0.05),
    "drip-body": Reply(200, b"{" + b" " * 500 + b"}", drip=0.05, drip_body_only=True),
    "401": _json(401, {"message": "Invalid Webhook Token", "code": 50027}),
    "403": _json(403, {"message": "Missing Permissions", "code": 50013}),
    "404": _json(404, {"message": "Unknown Webhook", "code": 10015}),
    "404-html": Reply(404, _PAGE, "text/html"),
    "400": _json(400, {"embeds": ["0"]}),
    "400-gone": _json(400, {"message": "Unknown Webhook", "code": 10015}),
    "413": Reply(413, _PAGE, "text/html"),
    "429": limited(0.3),
    "429-text": banned(1),
    "429-bare": banned(None),
    "500": _json(500, {"message": "500: Internal Server Error", "code": 0}),
    "502": Reply(502, _PAGE, "text/html"),
    "html": Reply(200, _PAGE, "text/html"),
    "redirect": Reply(302, headers=(("Location", "http://127.0.0.1:9/elsewhere"),)),
    "cut": Reply(200, b'{"id": "1"}', cut_after=5),
    "garbage": Reply(200, b"\x00\xff not http at all", cut_after=-1),
    "endless": Reply(200, b" " * (1 << 20)),
}
"""By name, as the command line takes them."""


@dataclass(frozen=True)
class Posted:
    """One request as it came in."""

    time: float
    """Of time.monotonic."""
    path: str
    message: dict[str, Any]
    files: dict[str, bytes]
    """Attachments by file name."""
    raw: bytes
    """The whole body."""

    @property
    def embed(self) -> dict[str, Any]:
        """Its one embed."""
        (embed,) = self.message["embeds"]
        return dict(embed)

    @property
    def text(self) -> str:
        """All that a reader sees."""
        fields = [f"{field['name']}: {field['value']}" for field in self.embed["fields"]]
        return "\n".join([self.embed["title"], self.embed.get("description") or "", *fields])


@dataclass
class FakeDiscord:
    """Serves inside `with`. `answer` may be changed at any time; `script` goes before it."""

    script: list[Reply] = field(default_factory=list)
    answer: Reply = REPLIES["204"]
    posts: list[Posted] = field(default_factory=list)
    on_post: Callable[[Posted], None] = lambda posted: None
    port: int = 0
    token: str = TOKEN
    certificate: Path | None = None
    """With its key, in PEM; https then."""

    def __post_init__(self) -> None:
        self.over = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> FakeDiscord:
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The webhook's address, token included."""
        plain = url_at(self._server.server_address[1], self.token)
        return plain.replace("http:", "https:") if self.certificate else plain

    def take(self, posted: Posted) -> Reply:
        """Keep a request, and say what it is answered."""
        with self._lock:
            self.posts.append(posted)
            reply = self.script.pop(0) if self.script else self.answer
        self.on_post(posted)
        return reply

    def wait_for(self, number: int, seconds: float = 5.0) -> list[Posted]:
        """The posts, once there are so many."""
        end = time.monotonic() + seconds
        while len(self.posts) < number and time.monotonic() < end:
            time.sleep(0.005)
        assert len(self.posts) >= number, f"{len(self.posts)} posts instead of {number}: {self.titles}"
        return list(self.posts)

    @property
    def titles(self) -> list[str]:
        """Of all posts so far."""
        return [posted.embed["title"] for posted in self.posts]


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for them, so that no socket outlives a test

    def __init__(self, fake: FakeDiscord) -> None:
        super().__init__(("127.0.0.1", fake.port), _Handler)
        self.fake = fake
        if fake.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(fake.certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, *_: object) -> None:
        """Not to stderr."""

    def do_POST(self) -> None:
        self.close_connection = True
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        message, files = _unpack(self.headers, raw)
        posted = Posted(time.monotonic(), self.path, message, files, raw)
        self._send(self.server.fake.take(posted))

    def _send(self, reply: Reply) -> None:
        over = self.server.fake.over
        if over.wait(reply.wait) if reply.wait else False:
            return
        head = f"HTTP/1.1 {reply.status} Scripted\r\n" if reply.cut_after != -1 else ""
        headers = [("Content-Type", reply.kind), ("Content-Length", str(len(reply.body))), *reply.headers]
        lines = "".join(
            f"{name}: {value}\r\n" for name, value in headers if reply.status != 204 or reply.headers
        )
        content = (f"{head}{lines}\r\n" if head else "").encode() + reply.body
        self._write(content, reply, over)

    def _write(self, content: bytes, reply: Reply, over: threading.Event) -> None:
        if reply.cut_after is not None and reply.cut_after >= 0:
            content = content[: content.index(b"\r\n\r\n") + 4 + reply.cut_after]
        if not reply.drip:
            self.wfile.write(content)
            return
        start = content.index(b"\r\n\r\n") + 4 if reply.drip_body_only else 0
        self.wfile.write(content[:start])
        for byte in content[start:]:
            self.wfile.write(bytes([byte]))
            if over.wait(reply.drip):
                return


def _unpack(headers: Message, raw: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The message and the attachments of a body, as Discord reads them."""
    kind = headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return dict(json.loads(raw)), {}
    parsed = BytesParser().parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + raw)
    message, files = {}, {}
    for part in parsed.get_payload():
        assert isinstance(part, Message)
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if part.get_param("name", header="content-disposition") == "payload_json":
            message = dict(json.loads(content))
        else:
            files[part.get_filename() or ""] = content
    return message, files


def url_at(port: int, token: str = TOKEN) -> str:
    """A webhook's address, whether somebody listens there or not."""
    return f"http://127.0.0.1:{port}/api/webhooks/{ID}/{token}"


def closed_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("behaviours", nargs="*", metavar="BEHAVIOUR", help=", ".join(REPLIES))
    parser.add_argument("--port", type=int, default=0)
    parsed = parser.parse_args()
    names = parsed.behaviours or ["204"]
    unknown = [name for name in names if name not in REPLIES]
    if unknown:
        parser.error(f"no such behaviour: {', '.join(unknown)}; there are {', '.join(REPLIES)}")

    def show(posted: Posted) -> None:
        said = {
            "path": posted.path,
            "message": posted.message,
            "files": {k: len(v) for k, v in posted.files.items()},
        }
        print(json.dumps(said), flush=True)

    *script, last = (REPLIES[name] for name in names)
    with FakeDiscord(script, last, on_post=show, port=parsed.port) as fake:
        print(fake.url, flush=True)
        for _ in sys.stdin:  # until it is closed
            pass


if __name__ == "__main__":
    main()
