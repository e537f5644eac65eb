"""kill -9 in a duel of servers: of the climb, and of a server. Nothing is left, and the verdict stays the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from hillclimb.agent.record.ledger import Ledger
from hillclimb.harness.errors import IncumbentFault
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from tests.crash.processes import descendants, expect_gone
from tests.crash.state import complaints, git
from tests.fakes.served import BACKEND, write_served_case

pytestmark = pytest.mark.xdist_group("served")

KNOBS = "DECODE_MS: {type: int, low: 0, high: 60, default: 60}\n"
WITH_KNOB = BACKEND.replace(
    'DECODE = float(os.environ.get("DECODE_SLEEP", 0))',
    """
with open(os.path.join(os.path.dirname(__file__), "knobs.yaml")) as file:
    KNOB = yaml.safe_load(file.read())["DECODE_MS"]
DECODE = int(os.environ.get("DECODE_MS") or KNOB["default"]) / 1000
""",
).replace("import torch\n", "import torch\nimport yaml\n")
INSIDE = "hillclimb.harness.serving.confined.inside"
REACHED_SECONDS = 240


@pytest.fixture
def root(tmp_path: Path, tiny: Path) -> Path:
    """A repository with a server that one knob makes faster, and the sweep tries that first."""
    case = write_served_case(tmp_path, tiny)
    (case / "workspace" / "backend.py").write_text(WITH_KNOB)
    (case / "workspace" / "knobs.yaml").write_text(KNOBS)
    with (case / "case.yaml").open("a") as settings:
        settings.write("sweep: {first: [{DECODE_MS: 0}]}\n")
    (tmp_path / ".gitignore").write_text("/runs/\n")
    git(tmp_path, "init", "--quiet", "--initial-branch", "work", "--template=")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=u", "-c", "user.email=u@example.org", "commit", "--quiet", "-m", "start")
    return tmp_path


def climb(root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from hillclimb.agent.cli import main; main()", "climb", "test/served"]
    options = ["--tag", "night", "--seed", "1", "--proposer", "sweep", "--budget-candidates", "1", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [*command, *options], cwd=root, stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.clock
@pytest.mark.slow(450)
@pytest.mark.timeout(1200)
def test_a_climb_that_is_killed_in_a_duel_comes_to_the_same_verdict(root: Path) -> None:
    with climb(root) as killed:
        assert killed.stdout
        for line in killed.stdout:
            event = json.loads(line)
            if event.get("stage") == "decide" and event.get("done", 0) >= 1:
                break
        else:
            pytest.fail("no duel was begun")
        started = dict(descendants(killed.pid))
        assert any(INSIDE in " ".join(psutil.Process(pid).cmdline()) for pid in started)
        killed.kill()
    expect_gone(started)
    with climb(root) as resumed:
        told, _ = resumed.communicate(timeout=900)
    assert resumed.returncode == 0
    assert json.loads(told.splitlines()[-1])["wins"] == 1
    assert complaints(root) == []
    ledger = Ledger.read(root / "runs" / "test/served/night" / "ledger.jsonl")
    assert [(one.n, one.settled) for one in ledger.candidates] == [(1, True)]
    branch = "hillclimb/test/served/night:cases/test/served/workspace/knobs.yaml"
    assert "default: 0" in git(root, "show", branch)


@pytest.mark.slow(120)
@pytest.mark.parametrize("victim", ["candidate", "incumbent"])
def test_a_server_that_is_killed_is_named_and_the_judge_goes_on(
    root: Path, tmp_path: Path, victim: str
) -> None:
    folder = root / "cases" / "test" / "served"
    fast = Side(tree=str(folder / "workspace"), knobs={"DECODE_MS": "0"})
    slow = Side(tree=str(folder / "workspace"))
    with closing(LocalJudge(folder, tmp_path / "judge.log")) as judge:
        reached = threading.Event()

        def kill() -> None:
            assert reached.wait(REACHED_SECONDS)
            time.sleep(0.5)
            inside = psutil.Process(judge._process.pid).children(recursive=True)
            servers = [one for one in inside if one.cmdline()[:3][-1:] == [INSIDE]]
            servers.sort(key=psutil.Process.create_time)
            os.kill(servers[0 if victim == "candidate" else -1].pid, signal.SIGKILL)

        def tell(progress: Progress) -> None:
            if progress.stage == "screen" and progress.done >= 1:
                reached.set()

        killer = threading.Thread(target=kill)
        killer.start()
        if victim == "candidate":
            report = judge.screen(fast, slow, tell)
            assert report.reason is Reason.OUT_OF_MEMORY, report.detail
        else:
            with pytest.raises(IncumbentFault):
                judge.screen(fast, slow, tell)
        killer.join()
        again = judge.screen(fast, slow, lambda _: None)
        assert again.reason is None and again.speedup is not None and again.speedup > 1.5
        process = psutil.Process(judge._process.pid)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
