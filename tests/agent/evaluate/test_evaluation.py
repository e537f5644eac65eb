"""Judging by hand from the command line: what it prints and records, and one landing through a real judge."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hillclimb.agent.evaluate.evaluation import EvaluationRequest, EvaluationResult, evaluate
from hillclimb.agent.record.entries import WebhookState
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Reason
from tests.agent.climb.climbed import git
from tests.agent.commands import in_process
from tests.fakes.cases import HONEST, QUICK, repeated, write_case, write_workspace
from tests.fakes.judge import PROVENANCE

SIX = {
    "webhook_enabled_by_config",
    "webhook_disabled_by_flag",
    "webhook_expected",
    "webhook_attempted",
    "webhook_sent",
    "webhook_status",
}


def hillclimb(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from hillclimb.agent.cli import main; main()", *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.fixture
def affine(tmp_path: Path) -> Path:
    """A repository with a real case that does its work 64 times."""
    write_case(tmp_path, repeated(64), QUICK)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "start")
    return tmp_path


@pytest.mark.clock
@pytest.mark.slow(25)
def test_a_win_lands_through_real_processes_and_can_be_shown(affine: Path) -> None:
    write_workspace(affine / "mine", HONEST)
    asked = ("--from", "mine", "--commit", "--tag", "hand", "--author", "agent", "--idea", "once is enough")
    done = hillclimb("evaluate", "test/affine", *asked, "--family", "reuse", "--json", cwd=affine)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert set(found) >= SIX
    assert (found["run"], found["n"], found["kept"]) == ("test/affine/hand", 1, True)
    assert found["confirmation"]["speedup"]["low"] > 1
    assert git(affine, "rev-parse", "hillclimb/test/affine/hand").strip() == found["commit"]
    assert git(affine, "status", "--porcelain", "--untracked-files=no") == ""
    shown = hillclimb("show", "test/affine", "1", "--tag", "hand", cwd=affine)
    assert shown.returncode == 0, shown.stderr
    for part in (
        "#1: kept",
        "once is enough",
        "author      agent",
        "family      reuse",
        "-    for _ in range(64):",
    ):
        assert part in shown.stdout
    assert "once is enough" in hillclimb("history", "test/affine", cwd=affine).stdout
    again = hillclimb("evaluate", "test/affine", *asked, cwd=affine)
    assert again.returncode == 2
    assert "mine and the run's incumbent have the same files" in again.stderr


LIBRARY = """COMPILED = False

import torch

def run(x, y):
    two = torch.full((1, 1), 2.0)
    for _ in range(64):
        y[:] = torch.from_numpy(x)[:, None].matmul(two)[:, 0].add(1).numpy()
"""
"""What no kernel may: it calls BLAS, and imports a module that the case does not allow."""


@pytest.mark.clock
@pytest.mark.slow(25)
def test_a_kernel_is_judged_against_a_library_and_may_still_call_none(affine: Path) -> None:
    write_workspace(affine / "mine", HONEST)
    write_workspace(affine / "theirs", LIBRARY)
    (affine / "yardstick.py").write_text(LIBRARY)
    digest = hashlib.sha256(LIBRARY.encode()).hexdigest()

    def judged(name: str) -> dict[str, Any]:
        asked = ("--from", name, "--against", "yardstick.py", "--json")
        done = hillclimb("evaluate", "test/affine", *asked, cwd=affine)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        assert (
            found["against"] == "yardstick.py"
            and found["yardstick"] == digest
            and found["kept"] == (done.returncode == 0)
        )
        return found

    assert judged("theirs")["reason"] == "policy"
    kept = judged("mine")
    assert kept["kept"], kept["detail"]
    assert kept["confirmation"]["speedup"]["low"] > 1


@pytest.mark.slow(5)
def test_against_a_yardstick_the_committed_workspace_says_what_may_change(affine: Path) -> None:
    write_workspace(affine / "mine", HONEST)
    (affine / "mine" / "data.bin").write_bytes(b"\xff")
    (affine / "yardstick.py").write_text(LIBRARY)
    case = affine / "cases/test/affine"
    asked = EvaluationRequest(case, str(affine / "mine"), str(affine / "yardstick.py"))
    found = evaluate(asked, lambda progress: None)
    assert found.reason == Reason.OUTSIDE_WORKSPACE and "data.bin" in found.detail


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def run(x, y):\n    pass\n", r"does not say COMPILED = False, so it is for torch.compile"),
        ("COMPILED = False\n", r"yardstick.py: is no yardstick of this case \(does_not_load: [^\n]*\Z"),
        (LIBRARY.replace("add(1)", "add(1.5)"), r"is no yardstick of this case \(wrong_result: "),
    ],
)
def test_a_yardstick_that_cannot_be_judged_is_told(affine: Path, source: str, says: str) -> None:
    (affine / "yardstick.py").write_text(source)
    asked = EvaluationRequest(affine / "cases/test/affine", against=str(affine / "yardstick.py"))
    with pytest.raises(UsageError, match=says):
        evaluate(asked, lambda progress: None)


FAILS_LATER = f"""{LIBRARY.replace("range(64)", "range(1)")}
calls, whole = [], run

def run(x, y):
    calls.extend([1] * (x.size == 20_000))
    assert len(calls) < 150, "tired"
    whole(x, y)
"""


@pytest.mark.slow(10)
def test_a_yardstick_that_fails_in_a_duel_is_its_authors_to_mend(affine: Path) -> None:
    write_workspace(affine / "mine", HONEST)
    (affine / "yardstick.py").write_text(FAILS_LATER)
    asked = EvaluationRequest(
        affine / "cases/test/affine", str(affine / "mine"), str(affine / "yardstick.py")
    )
    with pytest.raises(
        UsageError, match=r"yardstick\.py: passed the gate and failed in a duel [^\n]*tired[^\n]*\Z"
    ):
        evaluate(asked, lambda progress: None)


@pytest.mark.slow(3)
def test_what_was_not_run_carries_the_webhook_fields_too(affine: Path) -> None:
    write_workspace(affine / "mine", HONEST)
    (affine / "mine" / "data.bin").write_bytes(b"\xff")
    found = evaluate(
        EvaluationRequest(affine / "cases/test/affine", str(affine / "mine")), lambda progress: None
    )
    assert found.reason == Reason.OUTSIDE_WORKSPACE
    assert set(found.model_dump()) >= SIX
    assert (found.webhook_status, found.run, found.n, found.commit) == ("not configured", None, None, None)


def test_what_became_of_a_post_is_put_into_the_record() -> None:
    found = EvaluationResult(
        case="a/b",
        candidate="x",
        against="HEAD",
        knobs={},
        kept=True,
        reason=None,
        detail="",
        provenance=PROVENANCE,
        screening=None,
        confirmation=None,
    )
    posted = found.posted(WebhookState(webhook_enabled_by_config=True, webhook_status="not due"))
    assert (posted.webhook_enabled_by_config, posted.webhook_status) == (True, "not due")
    assert posted.case == "a/b" and not found.webhook_enabled_by_config


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--idea", "x"), "--idea x: is for --commit"),
        (("--tag", "t"), "--tag t: is for --commit"),
        (("--family", "f"), "--family f: is for --commit"),
        (("--author", "agent"), "--author agent: is for --commit"),
        (("--commit", "--author", "sweep"), "--author sweep: choose human or agent"),
        (("--commit", "--against", "HEAD"), "--against HEAD: with --commit the run's incumbent"),
        (("--commit", "--tag", "../x"), "cannot be part of a branch's name"),
        (("--commit", "--tag", "t"), "the working files and the run's incumbent have the same files"),
        (("--commit", "--tag", "t", "--from", "nowhere"), "'nowhere' is neither a folder nor a revision"),
    ],
)
def test_wrong_usage_is_one_line_and_leaves_no_run(
    affine: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done = in_process.hillclimb("evaluate", "test/affine", *arguments, cwd=affine)
    assert done.returncode == 2, done.stdout + done.stderr
    assert complaint in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (affine / "runs").exists()
