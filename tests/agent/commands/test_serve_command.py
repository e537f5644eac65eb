"""`hillclimb serve`, as a process."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import BadRequestError, OpenAI

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


def test_a_whole_answer_under_way_is_told_with_a_status(tmp_path: Path) -> None:
    path, asked = tmp_path / "s", {"model": "mock", "prompt": "a", "max_tokens": 4000, "ignore_eos": True}
    with ThreadPoolExecutor() as pool, httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
        with serving_until(signal.SIGTERM, 143, "--decode-ms", "20", "--unix-socket", str(path)):
            answer = pool.submit(client.post, "http://any/v1/completions", json=asked, timeout=60)
            while "hillclimb_requests_running 1.0" not in client.get("http://any/metrics").text:
                assert not answer.done()
        assert answer.result().status_code == 503
        assert "the server ends" in answer.result().text


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


SERVED = {
    "case.yaml": "schema: 1\nsummary: a served model\nmodel: mine\nserving: {slots: 2, context: 100}\n",
    "contract.py": "# nothing is judged\n",
    "benchmarks/main.yaml": "problems: [only]\ndistribution: normal\n",
    "workspace/kernel.py": "def run(): ...\n",
    "workspace/backend.py": (
        "from hillclimb.harness.serving.backends.mock_backend import MockBackend\n\n"
        "def create_backend(model):\n"
        "    print(f'loads {model.name}, \\x1b[31mred')\n"
        "    return MockBackend(model.name, slots=model.slots, context=model.context)\n"
    ),
}


def case_of(folder: Path, **changed: str) -> str:
    """A case below `folder`, with other files where they are named."""
    for name, text in {
        **SERVED,
        **{name.replace("__", "/") + ".py": text for name, text in changed.items()},
    }.items():
        path = folder / "cases" / "some" / "served" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder / "cases" / "some" / "served")


def test_a_case_is_served_by_its_own_backend(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAIN, "serve", "--json", "--port", "0", "--case", case_of(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        told = json.loads(process.stdout.readline())
        with OpenAI(base_url=told["at"], api_key="none") as client:
            found = client.completions.create(model="mine", prompt="a", max_tokens=9)
            with pytest.raises(BadRequestError, match="the context has 100 tokens"):
                client.completions.create(model="mine", prompt="a", max_tokens=100)
        process.send_signal(signal.SIGINT)
        more, printed = process.communicate(timeout=60)
    assert (told["model"], told["backend"]) == ("mine", "custom")
    assert found.usage and found.usage.completion_tokens == 9
    assert (process.returncode, more) == (130, "")
    loading, said = printed.splitlines()
    assert loading == "some/served: backend.py:create_backend is loaded, in 120 s at the most"
    assert said == r"loads mine, \x1b[31mred"


ENDS_ONCE_ASKED = """
import os, sys, time, threading

def ends_once_asked():
    while not any(thread.name == "engine" for thread in threading.enumerate()):
        time.sleep(0.01)
    time.sleep(1)
    os._exit(5)

"""


def test_a_server_that_dies_is_told(tmp_path: Path) -> None:
    dies = ENDS_ONCE_ASKED + SERVED["workspace/backend.py"].replace(
        "    print(f'loads {model.name}, \\x1b[31mred')",
        "    threading.Thread(target=ends_once_asked).start()",
    )
    command = [sys.executable, "-c", MAIN, "serve", "--port", "0", "--case"]
    done = subprocess.run(
        [*command, case_of(tmp_path, workspace__backend=dies)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "by the backend custom" in done.stdout
    assert "exited: left with status 5 before it was asked to" in done.stderr


def test_a_case_may_be_served_by_the_labs_backends(tmp_path: Path) -> None:
    with serving("--case", case_of(tmp_path), "--backend", "mock", "--port", "0") as address:
        assert httpx.get(f"{address}/models").json()["data"][0]["id"] == "mine"
        refused = pytest.raises(BadRequestError, match="the context has 100 tokens")
        with OpenAI(base_url=address, api_key="none") as client, refused:
            client.completions.create(model="mine", prompt="a", max_tokens=100)


def test_a_case_may_be_served_by_another_name(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAIN, "serve", "--json", "--port", "0", "--case", case_of(tmp_path)]
    with subprocess.Popen([*command, "--model", "other"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        told = json.loads(process.stdout.readline())
        assert httpx.get(f"{told['at']}/models").json()["data"][0]["id"] == told["model"] == "other"
        process.send_signal(signal.SIGTERM)


def test_options_that_do_not_fit_are_told(tmp_path: Path) -> None:
    assert "takes a snapshot; give its --model-path" in failing(MAIN, "--backend", "transformers")
    told = failing(MAIN, "--model-path", str(tmp_path))
    assert "--model-path is for --backend transformers, and mock answers here" in told
    own = ("--case", case_of(tmp_path))
    told = failing(MAIN, *own, "--slots", "3")
    assert "--slots is for --backend mock or transformers, and custom answers here" in told
    assert "--decode-ms is for --backend mock" in failing(MAIN, *own, "--decode-ms", "3")
    assert "--trust-workspace is for --backend custom" in failing(MAIN, "--trust-workspace")
    assert "--backend custom is a case's own; give its --case" in failing(MAIN, "--backend", "custom")
    assert "no case at 'none/such'" in failing(MAIN, "--case", "none/such")
    demo = str(ROOT / "cases" / "demo" / "cpu_matmul")
    assert "has no backend of its own; give its case.yaml a section `serving`" in failing(
        MAIN, "--case", demo
    )


def test_a_model_that_is_not_there_is_told(tmp_path: Path) -> None:
    folder = case_of(tmp_path)
    with Path(folder, "case.yaml").open("a") as settings:
        settings.write("model_path: weights\n")
    for backend in ("custom", "transformers"):
        told = failing(MAIN, "--case", folder, "--backend", backend)
        assert f"model_path 'weights': there is no {folder}/weights" in told


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
