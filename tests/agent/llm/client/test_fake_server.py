"""The fake server itself, as a program and in process."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.agent.llm.client.calling import HELLO, endpoint, fault_of
from tests.fakes.openai_server import Asked, Turn, answer, openai_server

ROOT = Path(__file__).resolve().parents[4]


def _program(script: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.fakes.openai_server", "--script", str(script), *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_as_a_program_with_a_list(tmp_path: Path) -> None:
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    script.write_text(json.dumps(["first", {"fault": "r503"}, {"text": "third", "delay": 0.05}]))
    with _program(script, "--log", str(log)) as server:
        assert server.stdout
        try:
            with endpoint(server.stdout.readline().strip(), deadline_seconds=10) as model:
                assert [model.ask(HELLO).text for _ in range(2)] == ["first", "third"]
        finally:
            server.kill()
    assert [json.loads(line)["count"] for line in log.read_text().splitlines()] == [1, 2, 3]


def test_as_a_program_with_a_function(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.fakes.openai_server import answer\n"
        "def script(asked):\n    return answer(f'{asked.count}: {asked.prompt}')\n"
    )
    with _program(script) as server:
        assert server.stdout
        try:
            with endpoint(server.stdout.readline().strip(), deadline_seconds=10) as model:
                assert model.ask(HELLO).text == "1: You are terse.\n\nhello"
        finally:
            server.kill()


def test_models_are_listed() -> None:
    with openai_server([answer("hi")]) as server:
        with urllib.request.urlopen(server.base_url + "/models") as reply:
            assert json.load(reply)["data"][0]["id"] == "fake-1"
        assert [asked.path for asked in server.others] == ["/v1/models"] and not server.requests


def test_a_script_that_breaks_is_not_swallowed() -> None:
    def script(asked: Asked) -> Turn:
        raise ZeroDivisionError("in the script")

    with (
        pytest.raises(ZeroDivisionError),
        openai_server(script) as server,
        endpoint(server.base_url) as model,
    ):
        assert "the script broke" in fault_of(model).detail
