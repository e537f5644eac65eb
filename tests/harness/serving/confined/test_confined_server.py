"""A workspace's own backend, served from a sandbox over a socket of ours."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import OpenAI

from hillclimb.harness.errors import CandidateFault, SandboxError, UsageError
from hillclimb.harness.records import Reason
from hillclimb.harness.sandbox.rungs.choose import Rung, bubblewrap_rung, choose_rung, landlock_rung
from hillclimb.harness.serving.backends.backend import ServedModel
from hillclimb.harness.serving.confined.confined_server import (
    ConfinedServer,
    ServingSpec,
    readable_files,
)
from tests.open_descriptors import nothing_left_open

ROOT = Path(__file__).resolve().parents[4]
RUNGS = {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}
LOADS = 'print("loads", model.name)'
BACKEND = f"""
import os, signal, socket, sys, time
from pathlib import Path
from hillclimb.harness.serving.backends.mock_backend import MockBackend

def create_backend(model):
    {LOADS}
    return MockBackend(model.name, slots=model.slots, context=model.context or 512, decode_seconds=0.01)
"""


def spec_of(folder: Path, source: str, *, load_seconds: float = 60, path: Path | None = None) -> ServingSpec:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "backend.py").write_text(textwrap.dedent(source))
    return ServingSpec(
        workspace,
        "backend.py:create_backend",
        ServedModel("small", path, 256, 3),
        memory_bytes=4 << 30,
        load_seconds=load_seconds,
        readable=readable_files(path) if path else (),
        environment={"KNOB": "3"},
    )


@contextmanager
def started(
    folder: Path, source: str, rung: Rung | None = None, *, load_seconds: float = 60, path: Path | None = None
) -> Iterator[ConfinedServer]:
    spec = spec_of(folder, source, load_seconds=load_seconds, path=path)
    with ConfinedServer(rung or bubblewrap_rung(), spec) as server:
        yield server


def over(server: ConfinedServer) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(server.path))
    return httpx.Client(transport=transport, base_url="http://any/v1", timeout=30)


@pytest.mark.parametrize("name", RUNGS)
def test_it_answers_behind_the_border(tmp_path: Path, name: str) -> None:
    with started(tmp_path, BACKEND, RUNGS[name]()) as server:
        server.await_ready()
        with (
            over(server) as http,
            OpenAI(base_url="http://any/v1", api_key="none", http_client=http) as client,
        ):  # type: ignore[arg-type]
            found = client.completions.create(model="small", prompt="a", max_tokens=7, temperature=0)
            assert found.usage and found.usage.completion_tokens == 7
        assert server.wait(0) is None
    assert server.wait(0) is not None
    assert not server.path.parent.exists()


def test_it_sees_its_model_and_its_knobs(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    for folder in (blobs, snapshot):
        folder.mkdir(parents=True)
    (blobs / "abc").write_text("seven")
    (snapshot / "weights").symlink_to("../../blobs/abc")
    source = BACKEND.replace(
        LOADS, 'assert (model.path / "weights").read_text() + os.environ["KNOB"] == "seven3"'
    )
    for rung in RUNGS.values():
        with started(tmp_path, source, rung(), path=snapshot) as server:
            server.await_ready()


LINKS = {"a file": "../secret", "a folder": "..", "everything": "/", "itself": "link", "nothing": "none"}


@pytest.mark.parametrize("name", LINKS)
def test_links_that_lead_out_of_the_model_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_text("seven")
    (folder / "same").symlink_to("weights")
    assert readable_files(folder) == (folder,)
    (folder / "link").symlink_to(LINKS[name])
    with pytest.raises(UsageError, match="leads out of the model's folder"):
        readable_files(folder)


FAULTS = {
    "raises": ("def create_backend(model):\n    raise ValueError('no weights')", "ValueError: no weights"),
    "is no backend": ("def create_backend(model):\n    return 3", "which lacks model, context"),
    "has none": ("x = 1", "has no attribute 'create_backend'"),
    "is broken": ("def create_backend(model)", "SyntaxError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_one_that_does_not_load_is_told(tmp_path: Path, name: str) -> None:
    source, text = FAULTS[name]
    with started(tmp_path, source) as server, pytest.raises(CandidateFault, match=text) as raised:
        server.await_ready()
    assert raised.value.reason == Reason.DOES_NOT_LOAD


ANSWERS = {
    "another name": BACKEND.replace("MockBackend(model.name", "MockBackend('large'"),
    "no name": BACKEND.replace(LOADS, "os.write(int(sys.argv[2]), b'{\"ok\": true}')"),
    "a name that is none": BACKEND.replace(
        LOADS, 'os.write(int(sys.argv[2]), b\'{"ok": true, "model": "\\\\ud800\\\\u001b[31m"}\')'
    ),
    "no message": BACKEND.replace(LOADS, "os.write(int(sys.argv[2]), b'ready')"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_it_says_of_itself_is_checked(tmp_path: Path, name: str) -> None:
    with started(tmp_path, ANSWERS[name]) as server, pytest.raises(CandidateFault) as raised:
        server.await_ready()
    assert raised.value.reason == Reason.BROKE_PROTOCOL


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    source = "import time\n\ndef create_backend(model):\n    print('waits', flush=True)\n    time.sleep(600)"
    late = pytest.raises(CandidateFault, match="no answer after 6 s of loading")
    with started(tmp_path, source, load_seconds=6) as server, late as raised:
        server.await_ready()
    assert raised.value.reason == Reason.HUNG
    assert server.wait(0) is not None


def test_one_that_leaves_is_told(tmp_path: Path) -> None:
    source = "import os\n\ndef create_backend(model):\n    os._exit(7)"
    fault = pytest.raises(CandidateFault, match="left with status 7")
    with started(tmp_path, source) as server, fault as raised:
        server.await_ready()
    assert raised.value.reason == Reason.EXITED


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("call", ["os.fork()", "os.execv('/bin/true', ['true'])", "os.system('true')"])
def test_one_that_starts_a_process_is_ended(tmp_path: Path, call: str, name: str) -> None:
    fault = pytest.raises(CandidateFault)
    with started(tmp_path, BACKEND.replace(LOADS, call), RUNGS[name]()) as server, fault as raised:
        server.await_ready()
    assert raised.value.reason == Reason.STARTED_PROCESS


ATTEMPTS = {
    "a connection": "socket.socket(socket.AF_INET).connect(('127.0.0.1', {port}))",
    "a connection by the first data": "socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', {port}))",
    "a connection of its own listener": (
        "end = socket.socket(fileno=os.dup(int(sys.argv[1]))); end.shutdown(socket.SHUT_RD); "
        "end.sendto(b'x', 0x20000000, ('127.0.0.1', {port}))"
    ),
    "a socket file": "socket.socket(socket.AF_UNIX).connect('{file}')",
    "datagrams to a socket file": (
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', '{datagrams}')"
    ),
    "its own workspace": "Path(__file__).write_text('x')",
    "the host's files": "Path('{mine}').read_text()",
}


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("what", ATTEMPTS)
def test_it_reaches_nothing_else(tmp_path: Path, what: str, name: str) -> None:
    (tmp_path / "mine").write_text("secret")
    places = {"mine": tmp_path / "mine", "file": tmp_path / "file", "datagrams": tmp_path / "datagrams"}
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as file,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        file.bind(str(places["file"]))
        file.listen()
        datagrams.bind(str(places["datagrams"]))
        attempt = ATTEMPTS[what].format(port=tcp.getsockname()[1], **places)
        source = BACKEND.replace(LOADS, f"{attempt}; raise SystemExit('got it')")
        with started(tmp_path, source, RUNGS[name]()) as server, pytest.raises(CandidateFault) as raised:
            server.await_ready()
        assert raised.value.reason == Reason.DOES_NOT_LOAD, raised.value.detail
        for end in (tcp, file, datagrams):
            end.settimeout(0.05)
            with pytest.raises(TimeoutError):
                end.recv(1) if end is datagrams else end.accept()


@pytest.mark.parametrize("name", RUNGS)
def test_a_server_is_proven_to_be_held(name: str) -> None:
    assert choose_rung(trust_workspace=False, serves=True).name == "bubblewrap"
    from hillclimb.harness.sandbox.canary.canary import escapes_from

    assert escapes_from(RUNGS[name](), serves=True) == []


def test_a_long_answer_fails_when_it_is_ended(tmp_path: Path) -> None:
    asked = {"model": "small", "prompt": "a", "max_tokens": 250, "ignore_eos": True, "stream": True}
    with started(tmp_path, BACKEND) as server:
        server.await_ready()
        with over(server) as http, http.stream("POST", "/completions", json=asked) as answer:
            lines = answer.iter_lines()
            assert "text_completion" in next(lines)
            server.close()
            assert "the server ends" in list(lines)[-2]
        server.close()


def test_one_that_ignores_the_wish_is_killed(tmp_path: Path) -> None:
    says_so = "os.write(int(sys.argv[2]), b'ignored')"
    ignores = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {says_so}; time.sleep(600)"
    late = pytest.raises(CandidateFault, match="ignored")
    with started(tmp_path, BACKEND.replace(LOADS, ignores)) as server, late:
        server.await_ready()
    ended = server.wait(0)
    assert ended is not None and ended.signal == signal.SIGKILL


def test_it_is_killed_when_the_wait_for_its_end_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a second Ctrl-C, or where the border fails."""
    with nothing_left_open():
        for error in (KeyboardInterrupt, SandboxError):
            with started(tmp_path, BACKEND) as server:
                server.await_ready()
                confined = server._confined

                def broken_off(seconds: float, error: type[BaseException] = error) -> None:
                    raise error("while waiting")

                with monkeypatch.context() as patched:
                    patched.setattr(server, "_confined", _Waits(confined, broken_off))
                    with pytest.raises(error):
                        server.close()
                assert confined.wait(10) is not None
                assert not server.path.parent.exists()
                server._is_closed = True


class _Waits:
    """A confined process whose `wait` does something else."""

    def __init__(self, confined: object, wait: object) -> None:
        self._confined, self.wait = confined, wait

    def __getattr__(self, name: str) -> object:
        return getattr(self._confined, name)


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.harness.serving.confined.test_confined_server import BACKEND, RUNGS, spec_of
from hillclimb.harness.serving.confined.confined_server import ConfinedServer
server = ConfinedServer(RUNGS[sys.argv[2]](), spec_of(Path(sys.argv[1]), BACKEND))
server.await_ready()
print(server._confined.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", RUNGS)
def test_it_ends_with_whoever_started_it(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", KILLED.format(root=str(ROOT)), str(tmp_path), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
