"""The demo in C: every setting of its knobs is right, and a climb of it ends with a win."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung

CASE = Path(__file__).resolve().parents[2] / "cases" / "demo" / "c_matvec"

pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("nm")), reason="no C compiler here (cc, nm)"
)


@pytest.fixture(scope="module")
def judge() -> Iterator[CaseJudge]:
    made = CaseJudge(Case(CASE), choose_rung(trust_workspace=False), CpuDevice())
    yield made
    made.close()


@pytest.mark.slow(2)
@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"MV_VECTORS": "1"},
        {"MV_SUMS": "8", "MV_FLAGS": "-O3"},
        {"MV_SUMS": "64", "MV_FLAGS": "-O3 -ffast-math"},
        {"MV_VECTORS": "1", "MV_FLAGS": "-O3 -funroll-loops"},
    ],
)
def test_every_setting_is_right(judge: CaseJudge, knobs: dict[str, str]) -> None:
    report = judge.gate(Side(tree=str(CASE / "workspace"), knobs=knobs), lambda progress: None)
    assert report.passed, report.detail


def hillclimb(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from hillclimb.agent.cli import main; main()", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=800,
    )


@pytest.mark.clock
@pytest.mark.slow(90)
@pytest.mark.timeout(900)
def test_a_climb_ends_with_a_win(tmp_path: Path) -> None:
    shutil.copytree(CASE, tmp_path / "cases" / "demo" / "c_matvec")
    name = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    for command in (["init", "-q"], ["add", "-A"], [*name, "commit", "-qm", "start"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    done = hillclimb(
        "climb", "demo/c_matvec", "--tag", "t", "--budget-candidates", "5", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    finished = json.loads(done.stdout.splitlines()[-1])
    assert finished["event"] == "finished"
    assert finished["wins"] >= 1, done.stdout[-3000:]
