"""The judge as a process: it answers, reports progress, is named when it dies, and never outlives its controller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.errors import CaseError, JudgeError
from harness.judge.pool import LocalJudge
from harness.judge.protocol import Progress
from harness.records import Reason, Side
from tests.fakes.cases import HONEST, write_case, write_workspace


@pytest.fixture
def side(tmp_path: Path) -> Side:
    tmp_path.chmod(0o755)
    return Side(tree=str(write_workspace(tmp_path / "candidate" / "workspace", HONEST)))


def test_it_answers_and_reports_progress(tmp_path: Path, side: Side) -> None:
    seen: list[Progress] = []
    judge = LocalJudge(write_case(tmp_path), tmp_path / "judge.log")
    try:
        provenance = judge.describe()
        assert len(provenance.contract) == len(provenance.seed_commitment) == 64
        assert provenance.sandbox in ("bubblewrap", "landlock")
        assert judge.gate(side, seen.append).passed
        assert {p.stage for p in seen} == {"prepare", "gate"}
        wrong = Side(tree=str(write_workspace(tmp_path / "wrong" / "workspace", "def run(x, y): y[:] = 0\n")))
        assert judge.gate(wrong, seen.append).reason is Reason.WRONG_RESULT
    finally:
        judge.close()


def test_a_broken_case_is_told_as_such(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    (folder / "contract.py").write_text("import nothing_of_the_kind\n")
    with pytest.raises(CaseError, match=r"contract\.py: Contract: cannot be loaded"):
        LocalJudge(folder, tmp_path / "judge.log")


def test_a_dead_judge_is_a_judge_error(tmp_path: Path, side: Side) -> None:
    judge = LocalJudge(write_case(tmp_path), tmp_path / "judge.log")
    os.kill(judge._process.pid, signal.SIGKILL)
    with pytest.raises(JudgeError, match="SIGKILL"):
        judge.gate(side, lambda progress: None)
    judge.close()


CONTROLLER = """
import sys
from pathlib import Path
from harness.judge.pool import LocalJudge
from harness.records import Side
judge = LocalJudge(Path(sys.argv[1]), Path(sys.argv[2]))
print(judge._process.pid, flush=True)
while True:
    judge.compare(Side(tree=sys.argv[3]), Side(tree=sys.argv[3]), "noise", lambda p: None)
"""


def test_it_dies_with_its_controller(tmp_path: Path, side: Side) -> None:
    arguments = [str(write_case(tmp_path)), str(tmp_path / "judge.log"), side.tree]
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, *arguments], stdout=subprocess.PIPE, text=True
    )
    with controller:
        assert controller.stdout is not None
        judge = int(controller.stdout.readline())
        time.sleep(1.5)
        controller.kill()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and (_alive(judge) or _holds(side.tree)):
        time.sleep(0.05)
    assert not _alive(judge)
    assert not _holds(side.tree), "candidates are gone as well"


def _alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def _holds(tree: str) -> bool:
    """Whether a process on this machine names the tree on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if tree.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False
