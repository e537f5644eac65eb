"""What a climb is asked to do, and the world it does it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.machine.clock import Clock, SystemClock
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.notify.notifier import Notifier, SilentNotifier
from hillclimb.agent.proposer import Proposer, ProposerContext
from hillclimb.agent.record.views import DrawPlot, Mirror, draw_progress, mirror_nothing
from hillclimb.agent.screen.events import Emit, TroubleEvent
from hillclimb.harness.judge.protocol import Judge

MakeJudge = Callable[[Path, Path], Judge]
"""(case folder, log file) -> a fresh judge; called again when one dies."""
MakeProposer = Callable[[ProposerContext], Proposer]
"""Who has ideas about this run."""


@dataclass(frozen=True)
class ClimbRequest:
    """What a person asks for; None leaves it to the run being resumed, then to the case, then to a default."""

    case: Path
    tag: str | None = None
    seed: int | None = None
    alpha: float | None = None
    budgets: BudgetOverrides = field(default_factory=BudgetOverrides)
    sources: str = ""
    """Where the ideas will come from, in words; told as the climb opens."""


@dataclass(frozen=True)
class Tools:
    """The world as the climb sees it; tests pass worlds that fail."""

    emit: Emit
    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=Disk)
    open_repository: Callable[[Path], Repository] = Repository.open
    draw: DrawPlot = draw_progress
    mirror: Mirror = mirror_nothing
    notifier: Notifier = field(default_factory=SilentNotifier)

    def notice(self, message: str) -> None:
        """Tell whoever watches about trouble that the climb copes with."""
        self.emit(TroubleEvent(time=self.clock.now(), message=message))
