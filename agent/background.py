"""What a proposer may know besides the ledger, and may touch: handed over once, when a run is opened or taken up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent.clock import Clock, SystemClock
from agent.disk import Disk
from agent.events import Emit
from harness.case.case import Case

if TYPE_CHECKING:
    from agent.ledger import Ledger


def _unseen(event: object) -> None:
    """Nobody watches."""


def _unlimited(ledger: Ledger, tokens: int, cost: float) -> bool:
    """There is no budget of model calls."""
    return True


@dataclass(frozen=True)
class Background:
    """The case as it stood when the run began, and the run's surroundings."""

    case: Case
    seed: int
    """The run's."""
    folder: Path
    """The run's."""
    files: Callable[[str], Mapping[str, str]]
    """commit -> the text files of its workspace, docs included, by path relative to workspace/."""
    disk: Disk = field(default_factory=Disk)
    clock: Clock = field(default_factory=SystemClock)
    emit: Emit = _unseen
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered around every wait, so that Ctrl-C ends it at once; nothing may be half written inside."""
    may_spend: Callable[[Ledger, int, float], bool] = _unlimited
    """Whether the budgets hold that many more tokens and US dollars, and something is left then."""
    ahead: int = 0
    """How many proposals the climb looks ahead, so that they can be compiled early; 0 where that would disturb."""
