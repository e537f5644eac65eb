"""A repository with a finished run of the toy case: the real controller, a simulated judge, the real sweep."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.screen.events import Event
from hillclimb.agent.sweep.sweep import SweepProposer
from tests.fakes.judge import SimulatedJudge
from tests.fakes.toy import write_toy

CASE = "demo/toy"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def make_repository(root: Path) -> Path:
    """The case folder in a repository with one commit."""
    folder = write_toy(root)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "start")
    return folder


def climb_toy(root: Path, tag: str = "first", candidates: int = 20) -> list[Event]:
    """Make the repository and climb in it; the events that a watcher saw."""
    events: list[Event] = []
    climb(
        ClimbRequest(case=make_repository(root), tag=tag, budgets=BudgetOverrides(candidates=candidates)),
        lambda folder, log: SimulatedJudge(),
        lambda background: SweepProposer(background.case.knobs, background.seed),
        Tools(emit=events.append, draw=lambda folder: ""),
    )
    return events
