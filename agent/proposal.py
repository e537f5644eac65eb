"""A proposal: edits, knob values or both, with a one-line idea and its author; and who makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from pydantic import Field

from harness.case.knobs import Value
from harness.records import Record

if TYPE_CHECKING:
    from agent.ledger import Ledger

Author = Literal["sweep", "llm", "human", "agent", "ablation"]


class Edit(Record):
    """One file of the workspace as it should be; `content` None removes it."""

    path: str
    """Relative to workspace/, with forward slashes. Checked against the mutable globs before anything else."""
    content: str | None


class Proposal(Record):
    """What to try next against the incumbent."""

    author: Author
    idea: str
    """One line."""
    family: str = ""
    """The kind of change it is one of, such as `vectorise` or `tiling`; empty where nobody named one."""
    edits: tuple[Edit, ...] = ()
    knobs: dict[str, Value] = Field(default_factory=dict)
    """Knob values to explore through the environment; they become source defaults only if they win."""
    call: int | None = None
    """The model call whose reply it is."""
    fingerprint: str = ""
    """Of the workspace it leads to, where its author looks for repetitions: equal ones are the same idea."""
    undoes: int | None = None
    """The win that it takes back, where it is a re-ablation."""


class Later(Record):
    """No idea yet, such as while a model thinks: ask again."""

    seconds: float
    """When it makes sense to."""


class Proposer(Protocol):
    """Anything that has ideas. The ledger is all it may know of the past, so a resumed run thinks the same."""

    def propose(self, ledger: Ledger) -> Proposal | Later | None:
        """The next proposal; None when out of ideas, or Plateau raised with a sentence that says why.

        It may append `called`, `dropped` and `turned` lines to the ledger, and nothing else.
        """

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """Each knob's share in what made candidates fast, largest first; empty where that is not known."""

    def finish(self, ledger: Ledger) -> None:
        """The climb ends here: give up what is under way, and write down what it cost."""


@runtime_checkable
class Farsighted(Protocol):
    """A proposer that can tell, as far as it knows, what it will propose."""

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """At most `count` proposals that would follow if nothing changed, the next one first.

        Nothing is recorded of them, in the ledger or elsewhere; a candidate without a verdict may be pending.
        """


@runtime_checkable
class Choosy(Protocol):
    """A proposer that does not always read the incumbent's profile, which takes seconds to make."""

    def reads_profile(self, ledger: Ledger) -> bool:
        """Whether it would, were it asked for a proposal now."""


def reads_profile(proposer: object, ledger: Ledger) -> bool:
    """Whether a proposer is to be shown where the incumbent's time goes; it is, unless it says otherwise."""
    return not isinstance(proposer, Choosy) or proposer.reads_profile(ledger)


def peek(proposer: object, ledger: Ledger, count: int) -> Sequence[Proposal]:
    """The proposals that a proposer foresees; none where it foresees nothing."""
    return proposer.peek(ledger, count) if count > 0 and isinstance(proposer, Farsighted) else ()
