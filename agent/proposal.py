"""A proposal: edits, knob values or both, with a one-line idea and its author."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hillclimb.harness.knobs.knobs import KnobValue
from hillclimb.harness.records import Record

if TYPE_CHECKING:
    pass

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
    identity: str = ""
    """Of the person who made it, `Name <address>` as their git has it; empty where nobody did."""
    family: str = ""
    """The kind of change it is one of, such as `vectorise` or `tiling`; empty where nobody named one."""
    edits: tuple[Edit, ...] = ()
    knobs: dict[str, KnobValue] = Field(default_factory=dict)
    """Knob values to explore through the environment; they become source defaults only if they win."""
    call: int | None = None
    """The model call whose reply it is."""
    fingerprint: str = ""
    """Of the workspace it leads to, where its author looks for repetitions: equal ones are the same idea."""
    undoes: int | None = None
    """The win that it takes back, where it is a re-ablation."""
