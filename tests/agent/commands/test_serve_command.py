"""`hillclimb serve`, as a process."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import OpenAI

ROOT = Path(__file__).resolve().parents[3]
MAIN = "from hillclimb.agent.cli import main; main()"


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Where it listens. It is asked to end behind the block, and does without a word."""
    with serving_until(signal.SIGINT, 130, *options) as address:
        yield address


@contextmanager
def serving_until(ends: signal.Signals, status: int, *options: str) -> Iterator[str]:
    command = [sys.executable, "-c", MAIN, "serve", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield json.loads(line)["at"]
        finally:
            process.send_signal(ends)
            more, told = process.communicate(timeout=30)
    assert (process.returncode, more, told) == (status, "", "")


def test_it_answers_until_it_is_interrupted() -> None:
    with serving("--port", "0", "--model", "small", "--answer-tokens", "5") as address:
        with OpenAI(base_url=address, api_key="none") as client:
            found = client.completions.create(model="small", prompt="a", temperature=0)
        assert (found.choices[0].finish_reason, len(found.choices[0].text)) == ("stop", 5)


def test_it_answers_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with serving("--unix-socket", str(path)) as address:
        assert address == f"unix:{path}"
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://any/v1/models").json()["data"][0]["id"] == "mock"
    assert not path.exists()


@pytest.mark.parametrize(("ends", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_answers_under_way_are_told_that_it_ends(ends: signal.Signals, status: int, tmp_path: Path) -> None:
    path = tmp_path / "s"
    slow = ("--decode-ms", "20", "--unix-socket", str(path))
    asked = {"model": "mock", "prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
        with serving_until(ends, status, *slow):
            request = client.build_request("POST", "http://any/v1/completions", json=asked)
            response = client.send(request, stream=True)
            lines = response.iter_lines()
            assert "text_completion" in next(lines)
        assert "the server ends" in list(lines)[-2]
        response.close()
    assert not path.exists()


def test_it_answers_by_a_snapshot(tmp_path: Path) -> None:
    folder, script = tmp_path / "tiny", ROOT / "scripts" / "make_tiny_model.py"
    subprocess.run([sys.executable, script, folder], check=True, stdout=subprocess.DEVNULL)
    options = (
        "--backend",
        "transformers",
        "--model-path",
        str(folder),
        "--mode",
        "static",
        "--context",
        "64",
    )
    with serving("--port", "0", *options) as address, OpenAI(base_url=address, api_key="none") as client:
        found = client.completions.create(
            model="tiny", prompt="a", max_tokens=9, extra_body={"ignore_eos": True}
        )
        assert found.usage and found.usage.completion_tokens == 9


def test_options_that_do_not_fit_are_told(tmp_path: Path) -> None:
    assert "takes a snapshot; give its --model-path" in failing(MAIN, "--backend", "transformers")
    assert "the mock has no snapshot" in failing(MAIN, "--model-path", str(tmp_path))


def failing(code: str, *options: str) -> str:
    command = [sys.executable, "-c", code, "serve", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    return done.stderr


def test_a_place_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = failing(MAIN, "--port", str(port))
    assert f"cannot listen at 127.0.0.1:{port}" in told and "choose another --port" in told
    (tmp_path / "s").touch()
    assert "choose another place, or remove what is there" in failing(
        MAIN, "--unix-socket", str(tmp_path / "s")
    )
    assert (tmp_path / "s").exists()


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn", "prometheus_client"])
def test_a_package_that_is_missing_is_told(missing: str) -> None:
    told = failing(f"import sys; sys.modules['{missing}'] = None; {MAIN}")
    assert "pip install 'hillclimb[serving]'" in told
