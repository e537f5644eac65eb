"""A climb with a model, killed at random moments: paid replies are used once, and none of them twice."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hillclimb.agent.record.ledger import Ledger
from tests.fakes.night import make_repository
from tests.fakes.openai_server import Asked, FakeOpenAI, Turn, answer, openai_server

ROOT = Path(__file__).resolve().parents[2]
CANDIDATES = 8


def thinking(asked: Asked) -> Turn:
    """Every reply is another idea: larger, smaller, wrong, or unreadable."""
    before = re.findall(r"^QUALITY = ([0-9.]+)$", asked.prompt, re.MULTILINE)[-1]
    after = round(float(before) * random.Random(asked.count).uniform(0.8, 1.3), 6)
    flaw = "\nFLAW = 'wrong_result'" if asked.count % 4 == 0 else ""
    block = f"<<<<<<< SEARCH\nQUALITY = {before}\n=======\nQUALITY = {after}{flaw}\n>>>>>>> REPLACE"
    text = f"IDEA: {after}\nFAMILY: number\nFILE: kernel.py\n{block}\n"
    return answer("nothing" if asked.count % 5 == 0 else text, delay=0.02)


def start(root: Path, server: FakeOpenAI) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.crash.model_night", str(root), server.base_url, str(CANDIDATES)]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True)


@pytest.mark.slow(7)
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    root, moments = make_repository(tmp_path / "repository"), random.Random(seed)
    case = root / "cases/demo/toy/case.yaml"
    case.write_text(case.read_text() + "llm: {in_flight: 3}\n")
    folder = root / "runs/demo/toy/night"
    with openai_server(thinking) as server:
        for _ in range(3):
            with start(root, server) as process:
                _await_ledger(folder, process)
                time.sleep(moments.uniform(0.0, 0.8))
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        with start(root, server) as process:
            assert process.wait(60) == 0
    ledger = Ledger.read(folder / "ledger.jsonl")
    assert ledger.judged == CANDIDATES or "replies in a row" in str(ledger.finished)
    calls = [candidate.proposal.call for candidate in ledger.candidates]
    assert len(set(calls)) == len(calls)
    prints = [candidate.proposal.fingerprint for candidate in ledger.candidates]
    assert len(set(prints)) == len(prints)
    mended = [call.repairs for call in ledger.calls if call.repairs is not None]
    assert len(set(mended)) == len(mended)
    assert all((folder / f"calls/{call.k}.json").is_file() for call in ledger.calls)


def _await_ledger(folder: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if (folder / "ledger.jsonl").exists() and (folder / "ledger.jsonl").stat().st_size:
            return
        time.sleep(0.02)
