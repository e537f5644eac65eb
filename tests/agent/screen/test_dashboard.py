"""study.db opens in optuna-dashboard, the program most people look at studies with."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.review.rebuilding import rebuild_views
from tests.agent.climb.climbed import CASE, climb_toy

START_SECONDS = 60


@pytest.fixture
def dashboard(tmp_path: Path) -> Any:
    """The address of a dashboard over a finished run."""
    climb_toy(tmp_path, candidates=12)
    list(rebuild_views(Repository.open(tmp_path), CASE, None))
    study = tmp_path / "runs" / CASE / "first" / "study.db"
    log = tmp_path / "log"
    port = str(_free_port())
    command = [str(Path(sys.executable).with_name("optuna-dashboard")), f"sqlite:///{study}", "--port", port]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield _await(f"http://127.0.0.1:{port}", log, process)
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return int(end.getsockname()[1])


def _await(address: str, log: Path, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            get(f"{address}/api/studies")
        except OSError:
            time.sleep(0.1)
        else:
            return address
    raise AssertionError(f"optuna-dashboard does not start: {log.read_text()}")


def get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.slow(5)
def test_the_study_and_its_trials_are_shown(dashboard: str) -> None:
    studies = get(f"{dashboard}/api/studies")["study_summaries"]
    assert [study["study_name"] for study in studies] == ["hillclimb"]
    shown = get(f"{dashboard}/api/studies/{studies[0]['study_id']}?after=0")
    assert len(shown["trials"]) == 13  # the start, and twelve configurations
    names = {entry["name"] for entry in shown["union_search_space"]}
    assert names == {"TILE", "UNROLL", "TRICK"}
