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

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-canary-77aa01"

DECORATOR = '@numba.njit(fastmath=knob("RS_FASTMATH"), error_model="numpy")'


def change(idea: str, family: str, search: str, replace: str) -> str:
    block = f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"
    return f"IDEA: {idea}\nFAMILY: {family}\nFILE: kernel.py\n{block}\n"


GOOD = change(
    "let sums be reordered", "vectorise", DECORATOR, '@numba.njit(fastmath=True, error_model="numpy")'
)
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
    done = hillclimb(root, "new-case", "--model-slug", "fresh", "--case-slug", "rows", environment={})
    assert done.returncode == 0, done.stderr
    settings = root / "cases/fresh/rows/case.yaml"
    settings.write_text(_hasten(settings.read_text()))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "start")
    return root


def _hasten(settings: str) -> str:
    """Fewer pairs, and less patience with what hangs: the verdicts of this test are clear ones."""
    for key, value in {
        "call_seconds": 2,
        "prepare_seconds": 8,
        "screen_blocks": 5,
        "pair_blocks": 1,
        "max_pairs": 12,
        "report_pairs": 3,
        "seeds": 1,
    }.items():
        settings, count = re.subn(rf"^  {key}: [0-9]+", f"  {key}: {value}", settings, flags=re.MULTILINE)
        assert count == 1, key
    return settings


def hillclimb(
    root: Path, *arguments: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from agent.cli import main; main()", *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    return subprocess.run(
        command, cwd=root, env={**inherited, **environment}, capture_output=True, text=True, timeout=280
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


def test_a_model_with_good_bad_and_malicious_replies(checkout: Path) -> None:
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
        events, ledger = climb(checkout, server, "--proposer", "llm", "--budget-candidates", "6")
    reasons = {
        proposed["proposal"]["idea"]: judged["reason"]
        for proposed, judged in zip(of_kind(ledger, "proposed"), of_kind(ledger, "judged"), strict=True)
    }
    assert reasons["look around"] == "policy"
    assert reasons["leave the sums out"] == "wrong_result"
    assert reasons["easier contract"] == "outside_workspace"
    assert reasons["end it"] in ("exited", "policy") and reasons["take a rest"] == "hung"
    assert reasons["let sums be reordered"] is None
    won = git(checkout, "show", "hillclimb/fresh/rows/t:cases/fresh/rows/workspace/kernel.py")
    assert "fastmath=True" in won
    assert events[-1]["cumulative"]["low"] > 1.5
    assert (git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "HEAD")) == before
    for path in (path for path in checkout.rglob("*") if path.is_file() and path.name != ".env"):
        assert KEY.encode() not in path.read_bytes(), path


def test_with_a_key_the_climb_is_mixed(checkout: Path) -> None:
    """The sweep finds the knob, the model edits, and every change of phase has its reason."""
    with openai_server([GOOD, "no more ideas"]) as server:
        _, ledger = climb(checkout, server, "--budget-candidates", "14")
    turns = of_kind(ledger, "turned")
    assert [turn["phase"] for turn in turns][:2] == ["sweep", "edit"]
    assert all(turn["reason"] for turn in turns)
    authors = [line["proposal"]["author"] for line in of_kind(ledger, "proposed")]
    assert authors[0] == "sweep" and any(judged["kept"] for judged in of_kind(ledger, "judged"))
    assert len(of_kind(ledger, "profiled")) >= 2
