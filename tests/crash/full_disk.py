"""Climbs on a file system that is really full: `python -m tests.crash.full_disk FOLDER TEMPLATE`, JSON lines out.

FOLDER is a small file system of its own. For each amount of space left, a copy of TEMPLATE is climbed in it; a
large file that filled the rest goes away when the climb has slept twice.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.screen.events import Event, TroubleEvent
from tests.crash.state import State, complaints, users_side
from tests.crash.world import TAG
from tests.fakes.clock import LedgerClock
from tests.fakes.judge import SimulatedJudge
from tests.fakes.proposer import PlannedProposer

PAGES_LEFT = (0, 1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128)
PLAN = ("both", "crash")


class ReliefClock(LedgerClock):
    """Somebody makes space while the climb waits for the second time."""

    def __init__(self, ledger: Path, filler: Path) -> None:
        super().__init__(ledger)
        self._filler = filler

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if len(self.slept) == 2:
            self._filler.unlink(missing_ok=True)


def main() -> None:
    folder, template = Path(sys.argv[1]), Path(sys.argv[2])
    twin, _ = _climb(folder, template, None)
    for pages in PAGES_LEFT:
        state, troubles = _climb(folder, template, pages)
        repository = folder / "repository"
        wrong = complaints(repository)
        untouched = users_side(repository) == users_side(template)
        answer = {
            "pages": pages,
            "troubles": troubles,
            "wrong": wrong,
            "equal": state == twin,
            "untouched": untouched,
        }
        print(json.dumps(answer), flush=True)


def _climb(folder: Path, template: Path, pages: int | None) -> tuple[State, list[str]]:
    """Climb in a fresh copy with so many pages left; how it ended, and what was said meanwhile."""
    repository, filler = folder / "repository", folder / "filler"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(template, repository)
    if pages is not None:
        _fill(filler, pages)
    events: list[Event] = []
    clock = ReliefClock(repository / "runs/demo/toy" / TAG / "ledger.jsonl", filler)
    request = ClimbRequest(case=repository / "cases/demo/toy", tag=TAG)
    tools = Tools(emit=events.append, clock=clock, draw=lambda folder: "")
    climb(
        request,
        lambda case, log: SimulatedJudge(),
        lambda background: PlannedProposer(background.seed, PLAN),
        tools,
    )
    filler.unlink(missing_ok=True)
    return State.of(repository), [event.message for event in events if isinstance(event, TroubleEvent)]


def _fill(filler: Path, pages: int) -> None:
    free = os.statvfs(filler.parent).f_bavail
    with filler.open("wb") as file:
        file.write(b"\0" * 4096 * max(0, free - pages))


if __name__ == "__main__":
    main()
