"""A real climb, real judge and real sandbox, killed with SIGKILL at random moments and resumed to its budget."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hillclimb.agent.record.ledger import Ledger
from tests.crash.processes import descendants, expect_gone
from tests.crash.state import complaints, git, users_side
from tests.fakes.cases import write_case

KILLS = 3
LONGEST = 4.0
"""A session is killed within so many seconds of the judge's being at work; a candidate takes about three."""
MORE = 3
"""The budget of the last session: so many candidates more than the killed ones judged."""
RUN = "test/affine/night"

KERNEL = """
import os
import numpy as np
import yaml

with open(os.path.join(os.path.dirname(__file__), "knobs.yaml")) as file:
    knobs = yaml.safe_load(file.read())
TIMES, CHUNKS = (int(os.environ.get(name) or knobs[name]["default"]) for name in ("TIMES", "CHUNKS"))

def run(x, y):
    for _ in range(TIMES):
        for part in range(CHUNKS):
            np.multiply(x[part::CHUNKS], np.float32(2), out=y[part::CHUNKS])
            np.add(y[part::CHUNKS], np.float32(1), out=y[part::CHUNKS])
"""
KNOBS = """
TIMES: {type: int, low: 1, high: 8, default: 8}
CHUNKS: {type: int, low: 1, high: 8, default: 8}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with the case committed, and work of the user's that is not."""
    case = write_case(tmp_path, KERNEL)
    (case / "workspace" / "knobs.yaml").write_text(KNOBS)
    (tmp_path / ".gitignore").write_text("/runs/\n")
    git(tmp_path, "init", "--quiet", "--initial-branch", "work", "--template=")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=u", "-c", "user.email=u@example.org", "commit", "--quiet", "-m", "start")
    (tmp_path / "staged").write_text("staged\n")
    git(tmp_path, "add", "staged")
    (tmp_path / "unknown").write_text("unknown\n")
    return tmp_path


@pytest.mark.clock
@pytest.mark.slow(90)
@pytest.mark.timeout(600)
def test_a_real_climb_killed_three_times_comes_to_its_budget(root: Path) -> None:
    before, moments = users_side(root), random.Random(20)
    for _ in range(KILLS):
        _climb_and_kill(root, moments)
        assert users_side(root) == before
    killed = Ledger.read(root / "runs" / RUN / "ledger.jsonl")
    candidates = killed.judged + MORE
    with _start(root, candidates) as last:
        last.communicate(timeout=280)
        assert last.returncode == 0
    assert users_side(root) == before
    assert complaints(root) == []
    _expect_consistent(root, candidates, sessions=len(killed.spans) + 1)


def _start(root: Path, candidates: int = 1000) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from hillclimb.agent.cli import main; main()", "climb", "test/affine"]
    options = ["--tag", "night", "--seed", "1", "--budget-candidates", str(candidates), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [*command, *options], cwd=root, stdout=subprocess.PIPE, text=True, env=environment
    )


def _climb_and_kill(root: Path, moments: random.Random) -> None:
    """One session, killed at a random moment."""
    with _start(root) as climb:
        assert climb.stdout
        assert json.loads(climb.stdout.readline())["event"] == "opened"
        time.sleep(moments.uniform(0.0, LONGEST))
        started = dict(descendants(climb.pid))
        assert started and climb.poll() is None
        climb.kill()
    expect_gone(started)


def _expect_consistent(root: Path, candidates: int, sessions: int) -> None:
    """Every candidate has one verdict, and the refs are what the ledger says."""
    ledger = Ledger.read(root / "runs" / RUN / "ledger.jsonl")
    assert ledger.opened and ledger.finished and not ledger.finished.interrupted
    assert len(ledger.spans) == sessions <= KILLS + 1, "one killed while it opened the run has no line"
    assert [(candidate.n, candidate.settled) for candidate in ledger.candidates] == [
        (n, True) for n in range(1, candidates + 1)
    ]
    wins = [win.judged.commit for win in ledger.wins if win.judged]
    assert wins, "either knob makes it many times as fast"
    branch = f"refs/heads/hillclimb/{RUN}"
    assert git(root, "rev-list", "--reverse", f"{ledger.opened.base}..{branch}").split() == wins
    rejected = {c.judged.ref: c.judged.commit for c in ledger.candidates if c.judged and not c.judged.kept}
    listed = git(root, "for-each-ref", "--format=%(refname) %(objectname)", "refs/hillclimb").splitlines()
    assert dict(line.split() for line in listed) == {ref: commit for ref, commit in rejected.items() if ref}
    for n in range(1, candidates + 1):
        assert json.loads((root / "runs" / RUN / "samples" / f"{n}.json").read_text())["n"] == n
