"""A proposal: edits, knob values or both, with a one-line idea and its author; and who makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

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
    undoes: int | None = None
    """The win that it takes back, where it is a re-ablation."""


class Proposer(Protocol):
    """Anything that has ideas. The ledger is all it may know of the past, so a resumed run thinks the same."""

    def propose(self, ledger: Ledger) -> Proposal | None:
        """The next proposal, a function of the proposer's seed and the ledger alone; None when out of ideas."""

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """Each knob's share in what made candidates fast, largest first; empty where that is not known."""
