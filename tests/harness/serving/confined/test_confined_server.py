"""A workspace's own backend, served from a sandbox over a socket of ours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import OpenAI

from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason
from hillclimb.harness.sandbox.rungs.choose import Rung, bubblewrap_rung, landlock_rung
from hillclimb.harness.serving.backends.backend import ServedModel
from hillclimb.harness.serving.confined.confined_server import ConfinedServer, ServingSpec
from hillclimb.harness.serving.server import listen_at, listen_on

RUNGS = {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}
BACKEND = """
import os, socket
from pathlib import Path
from hillclimb.harness.serving.backends.mock_backend import MockBackend

def create_backend(model):
    print("loads", model.name)
    return MockBackend(model.name, slots=model.slots, context=model.context or 512, decode_seconds=0.01)
"""


@contextmanager
def started(
    tmp_path: Path,
    source: str,
    rung: Rung | None = None,
    *,
    load_seconds: float = 60,
    path: Path | None = None,
) -> Iterator[tuple[ConfinedServer, Path]]:
    """With the socket's path."""
    workspace, at = tmp_path / "workspace", tmp_path / "socket"
    workspace.mkdir(exist_ok=True)
    (workspace / "backend.py").write_text(textwrap.dedent(source))
    spec = ServingSpec(
        workspace,
        "backend.py:create_backend",
        ServedModel("small", path, 256, 3),
        memory_bytes=4 << 30,
        load_seconds=load_seconds,
        environment={"KNOB": "3"},
    )
    with listen_on(at) as listening, ConfinedServer(rung or bubblewrap_rung(), spec, listening) as server:
        yield server, at


def over(at: Path) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(at)), base_url="http://any/v1", timeout=30)


@pytest.mark.parametrize("name", RUNGS)
def test_it_answers_behind_the_border(tmp_path: Path, name: str) -> None:
    with started(tmp_path, BACKEND, RUNGS[name]()) as (server, at):
        assert server.await_ready() == "small"
        with over(at) as http, OpenAI(base_url="http://any/v1", api_key="none", http_client=http) as client:  # type: ignore[arg-type]
            found = client.completions.create(model="small", prompt="a", max_tokens=7, temperature=0)
            assert found.usage and found.usage.completion_tokens == 7
        assert server.wait(0) is None
    assert server.wait(0) is not None


def test_it_answers_at_a_port(tmp_path: Path) -> None:
    with listen_at("127.0.0.1", 0) as listening:
        workspace = tmp_path / "workspace"
        workspace.mkdir()
        (workspace / "backend.py").write_text(BACKEND)
        model = ServedModel("small", None, None, 1)
        spec = ServingSpec(
            workspace, "backend.py:create_backend", model, memory_bytes=4 << 30, load_seconds=60
        )
        with ConfinedServer(bubblewrap_rung(), spec, listening) as server:
            server.await_ready()
            port = listening.getsockname()[1]
            assert httpx.get(f"http://127.0.0.1:{port}/v1/models").json()["data"][0]["id"] == "small"


def test_it_sees_its_model_and_its_knobs(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.write_text("seven")
    source = BACKEND.replace(
        'print("loads", model.name)',
        'model = model._replace(name=model.path.read_text() + os.environ["KNOB"])',
    )
    with started(tmp_path, source, path=weights) as (server, _):
        assert server.await_ready() == "seven3"


FAULTS = {
    "raises": ("def create_backend(model):\n    raise ValueError('no weights')", "ValueError: no weights"),
    "is no backend": ("def create_backend(model):\n    return 3", "which lacks model, context"),
    "has none": ("x = 1", "has no attribute 'create_backend'"),
    "is broken": ("def create_backend(model)", "SyntaxError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_one_that_does_not_load_is_told(tmp_path: Path, name: str) -> None:
    source, text = FAULTS[name]
    with started(tmp_path, source) as (server, _), pytest.raises(CandidateFault, match=text) as raised:
        server.await_ready()
    assert raised.value.reason == Reason.DOES_NOT_LOAD


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    source = "import time\n\ndef create_backend(model):\n    print('waits', flush=True)\n    time.sleep(600)"
    with (
        started(tmp_path, source, load_seconds=6) as (server, _),
        pytest.raises(CandidateFault, match="no answer after 6 s of loading; it printed: waits") as raised,
    ):
        server.await_ready()
    assert raised.value.reason == Reason.HUNG
    assert server.wait(0) is not None


def test_one_that_leaves_is_told(tmp_path: Path) -> None:
    source = "import os\n\ndef create_backend(model):\n    os._exit(7)"
    fault = pytest.raises(CandidateFault, match="left with status 7")
    with started(tmp_path, source) as (server, _), fault as raised:
        server.await_ready()
    assert raised.value.reason == Reason.EXITED


ATTEMPTS = {
    "a connection": "socket.socket(socket.AF_INET).connect(('127.0.0.1', 80))",
    "a socket file": "socket.socket(socket.AF_UNIX)",
    "its own workspace": "Path(__file__).write_text('x')",
    "the host's files": "Path('{mine}').read_text()",
}


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("what", ATTEMPTS)
def test_it_reaches_nothing_else(tmp_path: Path, what: str, name: str) -> None:
    mine = tmp_path / "mine"
    mine.write_text("secret")
    attempt = ATTEMPTS[what].format(mine=mine)
    source = BACKEND.replace(
        'print("loads", model.name)',
        f"try:\n        {attempt}\n        got = 'got it'\n    except OSError:\n        got = 'refused'\n"
        "    model = model._replace(name=got)",
    )
    with started(tmp_path, source, RUNGS[name]()) as (server, _):
        assert server.await_ready() == "refused"


def test_a_long_answer_fails_when_it_is_ended(tmp_path: Path) -> None:
    asked = {"model": "small", "prompt": "a", "max_tokens": 250, "ignore_eos": True, "stream": True}
    with started(tmp_path, BACKEND) as (server, at):
        server.await_ready()
        with over(at) as http, http.stream("POST", "/completions", json=asked) as answer:
            lines = answer.iter_lines()
            assert "text_completion" in next(lines)
            server.close()
            assert "the server ends" in list(lines)[-2]


def test_one_that_ignores_the_wish_is_killed(tmp_path: Path) -> None:
    source = (
        "import os, signal, time\n\ndef create_backend(model):\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(600)"
    )
    with started(tmp_path, source, load_seconds=3) as (server, _):
        with pytest.raises(CandidateFault, match="no answer"):
            server.await_ready()
        server.close()
    ended = server.wait(0)
    assert ended is not None and ended.signal == 9


def test_the_socket_stays_the_callers(tmp_path: Path) -> None:
    """Another server takes it up."""
    at, workspace = tmp_path / "socket", tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "backend.py").write_text(BACKEND)
    with listen_on(at) as listening:
        for name in ("first", "second"):
            model = ServedModel(name, None, None, 1)
            spec = ServingSpec(
                workspace, "backend.py:create_backend", model, memory_bytes=4 << 30, load_seconds=60
            )
            with ConfinedServer(bubblewrap_rung(), spec, listening) as server, over(at) as http:
                server.await_ready()
                assert http.get("/models").json()["data"][0]["id"] == name
