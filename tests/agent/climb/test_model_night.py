"""Whole nights by the command line: a freshly stamped case, a model on loopback, the real judge in its sandbox."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.night import git
from tests.fakes.openai_server import FakeOpenAI, answer, fault, openai_server

ROOT = Path(__file__).resolve().parents[3]
KEY = "sk-canary-77aa01"

ROWS = "    for i in range(np.uintp(x.shape[0])):"
OFTEN = """    rows = np.uintp(x.shape[0])
    for again in range(np.uintp(8) * rows):
        i = again % rows"""
"""A start so slow that leaving the repetitions out wins on the busiest machine."""


def change(idea: str, family: str, search: str, replace: str) -> str:
    block = f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"
    return f"IDEA: {idea}\nFAMILY: {family}\nFILE: kernel.py\n{block}\n"


GOOD = change("sum every row once", "repetition", OFTEN, ROWS)
CHEAT = change("leave the sums out", "skip", "        s[i] = total", "        s[i] = np.float32(0)")
SPY = change("look around", "spy", "import numba", "import numba\nimport socket")
ESCAPE = "IDEA: easier contract\nFILE: ../contract.py\n```python\nclass Contract: ...\n```\n"
HANG = change(
    "take a rest", "wait", "    columns = np.uintp(x.shape[1])", "    while True:\n        columns = 1"
)
CRASH = change("end it", "exit", "ZERO = np.uintp(0)", "import os\nos._exit(0)")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the template, and a case stamped from it by the command line."""
    root = tmp_path / "repository"
    (root / "cases").mkdir(parents=True)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main", str(root))
    subprocess.run(["cp", "-r", str(ROOT / "cases/_template"), str(root / "cases")], check=True)
    (root / ".gitignore").write_text("/runs/\n/.env\n__pycache__/\n")
    done = hillclimb(root, "new-case", "--family", "fresh", "--case", "rows", environment={})
    assert done.returncode == 0, done.stderr
    settings = root / "cases/fresh/rows/case.yaml"
    settings.write_text(_hasten(settings.read_text()))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "start")
    return root


def slow_down(root: Path) -> None:
    """Have the case start from sums that are repeated."""
    kernel = root / "cases/fresh/rows/workspace/kernel.py"
    assert ROWS in kernel.read_text()
    kernel.write_text(kernel.read_text().replace(ROWS, OFTEN))
    git(root, "commit", "--quiet", "--all", "--message", "slow")


def _hasten(settings: str) -> str:
    """Fewer pairs, and less patience with what hangs: the verdicts of this test are clear ones."""
    for key, value in {
        "call_seconds": 2,
        "prepare_seconds": 8,
        "segment_ms": 2,
        "screen_blocks": 5,
        "pair_blocks": 2,
        "report_pairs": 3,
        "seeds": 1,
    }.items():
        settings, count = re.subn(rf"^  {key}: [0-9]+", f"  {key}: {value}", settings, flags=re.MULTILINE)
        assert count == 1, key
    return settings


def hillclimb(
    root: Path, *arguments: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from hillclimb.agent.cli import main; main()", *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    return subprocess.run(
        command, cwd=root, env={**inherited, **environment}, capture_output=True, text=True, timeout=500
    )


def climb(root: Path, server: FakeOpenAI, *options: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Climb with the server as the model, by `.env`; the events and the ledger."""
    (root / ".env").write_text(
        f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={server.base_url}\nHILLCLIMB_MODEL=fake-1\n"
    )
    (root / ".env").chmod(0o600)
    done = hillclimb(root, "climb", "fresh/rows", "--tag", "t", "--json", *options, environment={})
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ledger = (root / "runs/fresh/rows/t/ledger.jsonl").read_text().splitlines()
    return events, [json.loads(line) for line in ledger]


def of_kind(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.clock
@pytest.mark.slow(40)
@pytest.mark.timeout(600)
def test_a_model_with_good_bad_and_malicious_replies(checkout: Path) -> None:
    slow_down(checkout)
    script = [
        "Sure! Here is what I would do: make it faster.",
        SPY,
        answer(CHEAT, delay=1.0),
        ESCAPE,
        fault("html502"),
        CRASH,
        HANG,
        answer(GOOD, delay=2.0),
        "no more ideas",
    ]
    before = git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "HEAD")
    with openai_server(script) as server:
        events, ledger = climb(checkout, server, "--proposer", "llm", "--budget-candidates", "5")
    reasons = {
        proposed["proposal"]["idea"]: judged["reason"]
        for proposed, judged in zip(of_kind(ledger, "proposed"), of_kind(ledger, "judged"), strict=True)
    }
    assert reasons["look around"] == "policy"
    assert reasons["leave the sums out"] == "wrong_result"
    assert reasons["end it"] in ("exited", "policy") and reasons["take a rest"] == "hung"
    assert reasons["sum every row once"] is None
    won = git(checkout, "show", "hillclimb/fresh/rows/t:cases/fresh/rows/workspace/kernel.py")
    assert ROWS in won
    assert events[-1]["cumulative"]["low"] > 1.5
    details = [line["detail"] for line in of_kind(ledger, "called") if line["outcome"] == "unusable"]
    assert any("'../contract.py'" in detail for detail in details)
    assert (git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "HEAD")) == before
    for path in (path for path in checkout.rglob("*") if path.is_file() and path.name != ".env"):
        assert KEY.encode() not in path.read_bytes(), path


@pytest.mark.clock
@pytest.mark.slow(60)
def test_with_a_key_the_climb_is_mixed(checkout: Path) -> None:
    with openai_server(["not asked yet"]) as server:
        _, ledger = climb(checkout, server, "--budget-candidates", "1")
    (turned,) = of_kind(ledger, "turned")
    assert (turned["phase"], turned["n"]) == ("sweep", 1) and turned["reason"]
    assert of_kind(ledger, "proposed")[0]["proposal"]["author"] == "sweep"
    assert of_kind(ledger, "profiled")[0]["profile"]["problems"]
