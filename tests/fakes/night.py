"""A whole climb of the toy case in a line, with fakes for all that a test does not care about."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.machine.clock import Clock
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.notify.notifier import Notifier, SilentNotifier
from hillclimb.agent.proposer import Proposer, ProposerContext
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.screen.events import Event, FinishedEvent, TroubleEvent
from hillclimb.harness.judge.protocol import Judge
from tests.fakes.clock import LedgerClock
from tests.fakes.judge import SimulatedJudge
from tests.fakes.proposer import KINDS, PlannedProposer
from tests.fakes.toy import write_toy

TAG = "night"


def git(root: Path, *arguments: str) -> str:
    """Git as a user runs it."""
    who = ("-c", "user.name=user", "-c", "user.email=user@example.org")
    command = ["git", "-C", str(root), *who, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def make_repository(root: Path, *, commits: bool = True) -> Path:
    """A repository with the toy case in it, committed or not."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "--quiet", "--initial-branch", "main")
    write_toy(root)
    (root / ".gitignore").write_text("/runs/\n")
    if commits:
        git(root, "add", ".")
        git(root, "commit", "--quiet", "--message", "start")
    return root


@dataclass
class Night:
    """What a climb is made of; `climb` runs one session."""

    root: Path
    tag: str | None = TAG
    plan: tuple[str, ...] = KINDS
    judge: Callable[[], Judge] = SimulatedJudge
    proposer: Proposer | None = None
    make_proposer: Callable[[ProposerContext], Proposer] | None = None
    notifier: Notifier = field(default_factory=SilentNotifier)
    budgets: BudgetOverrides = field(default_factory=BudgetOverrides)
    seed: int | None = None
    disk: Disk = field(default_factory=Disk)
    clock: Clock | None = None
    draw: Callable[[Path], str] = lambda folder: ""
    events: list[Event] = field(default_factory=list)

    def climb(self) -> FinishedEvent:
        request = ClimbRequest(self.case, self.tag, self.seed, None, self.budgets)
        clock = self.clock or LedgerClock(self.folder / "ledger.jsonl")
        tools = Tools(emit=self._emit, clock=clock, disk=self.disk, draw=self.draw, notifier=self.notifier)
        return climb(request, lambda case, log: self.judge(), self._proposer, tools)

    @property
    def case(self) -> Path:
        return self.root / "cases/demo/toy"

    @property
    def folder(self) -> Path:
        return self.root / "runs/demo/toy" / (self.tag or TAG)

    @property
    def ledger(self) -> Ledger:
        return Ledger.read(self.folder / "ledger.jsonl")

    @property
    def troubles(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, TroubleEvent)]

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self.notifier.notify(event)

    def _proposer(self, background: ProposerContext) -> Proposer:
        if self.make_proposer:
            return self.make_proposer(background)
        return self.proposer or PlannedProposer(background.seed, self.plan)
