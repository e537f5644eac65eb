"""Who makes proposals: the protocol, and what a proposer may know and touch besides the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hillclimb.agent.machine.clock import Clock, SystemClock
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.screen.events import Emit
from hillclimb.harness.case.case import Case
from hillclimb.harness.records import Record

if TYPE_CHECKING:
    from hillclimb.agent.record.ledger import Ledger


def _ignore_event(event: object) -> None:
    """Nobody watches."""


def _unlimited(ledger: Ledger, tokens: int, cost: float) -> bool:
    """There is no budget of model calls."""
    return True


@dataclass(frozen=True)
class ProposerContext:
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
    emit: Emit = _ignore_event
    interruptible_wait: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered around every wait, so that Ctrl-C ends it at once; nothing may be half written inside."""
    may_spend: Callable[[Ledger, int, float], bool] = _unlimited
    """Whether the budgets hold that many more tokens and US dollars, and something is left then."""
    lookahead_count: int = 0
    """How many proposals the climb looks ahead, so that they can be compiled early; 0 where that would disturb."""


class NotReady(Record):
    """No idea yet, such as while a model thinks: ask again."""

    seconds: float
    """When it makes sense to."""


class Proposer(Protocol):
    """Anything that has ideas. The ledger is all it may know of the past, so a resumed run thinks the same."""

    def propose(self, ledger: Ledger) -> Proposal | NotReady | None:
        """The next proposal; None when out of ideas, or Plateau raised with a sentence that says why.

        It may append `called`, `dropped` and `turned` lines to the ledger, and nothing else.
        """

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """Each knob's share in what made candidates fast, largest first; empty where that is not known."""

    def finish(self, ledger: Ledger) -> None:
        """The climb ends here: give up what is under way, and write down what it cost."""


@runtime_checkable
class CanPeek(Protocol):
    """A proposer that can tell, as far as it knows, what it will propose."""

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """At most `count` proposals that would follow if nothing changed, the next one first.

        Nothing is recorded of them, in the ledger or elsewhere; a candidate without a verdict may be pending.
        """


@runtime_checkable
class UsesProfile(Protocol):
    """A proposer that does not always read the incumbent's profile, which takes seconds to make."""

    def reads_profile(self, ledger: Ledger) -> bool:
        """Whether it would, were it asked for a proposal now."""


@runtime_checkable
class ExplainsImportances(Protocol):
    """A proposer that can say why it tells no importances."""

    def why_no_importances(self, ledger: Ledger) -> str:
        """In words, such as too few observations; empty where importances are told or there are no knobs."""


def why_no_importances(proposer: object, ledger: Ledger) -> str:
    """Why a proposer tells no importances, in words; empty where it does not say."""
    return proposer.why_no_importances(ledger) if isinstance(proposer, ExplainsImportances) else ""


def reads_profile(proposer: object, ledger: Ledger) -> bool:
    """Whether a proposer is to be shown where the incumbent's time goes; it is, unless it says otherwise."""
    return not isinstance(proposer, UsesProfile) or proposer.reads_profile(ledger)


def peek(proposer: object, ledger: Ledger, count: int) -> Sequence[Proposal]:
    """The proposals that a proposer foresees; none where it foresees nothing."""
    return proposer.peek(ledger, count) if count > 0 and isinstance(proposer, CanPeek) else ()
