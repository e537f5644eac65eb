"""A server here with a certificate of its own: SSL_CERT_FILE counts, and a wrong one is no passing trouble."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hillclimb.agent.llm.client.faults import Fault
from hillclimb.harness.errors import UsageError
from tests.agent.llm.client.calling import HELLO, endpoint, fault_of

BODY = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}], "model": "m"}


class Handler(BaseHTTPRequestHandler):
    """Answers every request alike."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(BODY).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not here")
    folder = tmp_path_factory.mktemp("certificate")
    paths = folder / "cert.pem", folder / "key.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "9",
        "-subj",
        "/CN=localhost",
    ]
    files = ["-out", str(paths[0]), "-keyout", str(paths[1]), "-addext", names]
    subprocess.run([*made, *files], check=True, capture_output=True)
    return paths


@contextmanager
def serving(certificate: tuple[Path, Path] | None) -> Iterator[int]:
    """The port of a server that speaks TLS, or without a certificate plain HTTP."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_that_is_named_is_believed(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with serving(certificate) as port, endpoint(f"https://{host}:{port}/v1") as model:
        assert model.ask(HELLO).text == "hello"


def test_one_that_nobody_vouches_for_is_said_at_once_with_the_remedy(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with serving(certificate) as port, endpoint(f"https://localhost:{port}/v1") as model:
        found = fault_of(model)
    assert (found.fault, found.attempts, found.is_final) == (Fault.NO_TLS, 1, True)
    assert "SSL_CERT_FILE" in found.detail and "verify failed" in found.detail
    assert found.usage.total == 0


def test_https_to_a_port_that_speaks_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(None) as port, endpoint(f"https://localhost:{port}/v1") as model:
        found = fault_of(model)
    assert (found.fault, found.attempts) == (Fault.NO_TLS, 1)
    assert "begin with http:" in found.detail


def test_a_file_of_certificates_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match="SSL_CERT_FILE"), endpoint("https://localhost:9/v1"):
        pass


def test_a_server_without_tls_on_this_machine_needs_no_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with serving(None) as port, endpoint(f"http://localhost:{port}/v1") as model:
        assert model.ask(HELLO).text == "hello"
