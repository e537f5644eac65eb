"""The lines of a ledger: one frozen record a kind, told apart by `kind`. docs/records.md explains each field.

opened      the run began: case, base commit, what judges
session     a controller took the run up (the only kind that depends on how often it was interrupted)
baselined   the baseline passed the gate; its time and the noise floor
proposed    candidate n, before anything is done with it
confirming  candidate n goes to fresh pairs with its share of the run's alpha
judged      candidate n's verdict, and the commit and ref about to be written (the intent)
settled     that ref is written (done)
remeasured  first commit against last
finished    a budget, the patience or the user ended the climb
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from agent.proposal import Proposal
from harness.records import (
    Confirmation,
    GateReport,
    GuardrailReport,
    Interval,
    Provenance,
    Reason,
    Record,
    Screening,
)


class Opened(Record):
    kind: Literal["opened"] = "opened"
    schema_version: Literal[1]
    """A ledger of another version is refused."""
    time: float
    """Seconds since the epoch, as everywhere."""
    case: str
    """`<family>/<case>`."""
    case_path: str
    """The case folder, relative to the repository's root."""
    tag: str
    seed: int
    alpha: float
    """The run's whole error budget."""
    base: str
    """Commit the branch starts from."""
    snapshot: bool
    """Whether `base` is a snapshot of files that were not committed."""
    provenance: Provenance


class Session(Record):
    kind: Literal["session"] = "session"
    time: float
    pid: int
    host: str


class Baselined(Record):
    kind: Literal["baselined"] = "baselined"
    time: float
    gate: GateReport
    seconds_per_call: float
    pair_sd: float
    """Noise floor: standard deviation of one A/A pair's log ratio."""
    noise: Interval
    """A/A speedup; an honest judge's interval contains 1."""
    seconds: float


class Proposed(Record):
    kind: Literal["proposed"] = "proposed"
    n: int
    time: float
    proposal: Proposal


class Confirming(Record):
    kind: Literal["confirming"] = "confirming"
    n: int
    k: int
    """How many confirmations the run has begun, this one included."""
    alpha: float


class Judged(Record):
    kind: Literal["judged"] = "judged"
    n: int
    time: float
    kept: bool
    reason: Reason | None = None
    detail: str = ""
    gate: GateReport | None = None
    screened: float | None = None
    """Speedup over the incumbent seen on the screening pair; a lead, not a claim."""
    speedup: Interval | None = None
    cumulative: Interval | None = None
    seconds_per_call: float | None = None
    e_value: float | None = None
    guardrails: tuple[GuardrailReport, ...] = ()
    tree: str | None = None
    """Git tree of the candidate; None where none could be built."""
    parent: str
    """The incumbent's commit."""
    commit: str | None = None
    ref: str | None = None
    """The ref that points, or is about to point, at `commit`."""
    seconds: float = 0.0
    """The judge's time on it."""


class Settled(Record):
    kind: Literal["settled"] = "settled"
    n: int


class Remeasured(Record):
    kind: Literal["remeasured"] = "remeasured"
    time: float
    commit: str
    speedup: Interval
    seconds_per_call: tuple[float, float]


class Finished(Record):
    kind: Literal["finished"] = "finished"
    time: float
    reason: str
    interrupted: bool = False
    """The user ended it; the next climb takes the run up again without being asked to."""
    importances: dict[str, float] = Field(default_factory=dict)
    """Each knob's share in what made candidates fast, as the proposer reckons it."""


class Samples(Record):
    """samples/<n>.json: everything the judge said of candidate n, raw pairs included. Beside the ledger, not in it."""

    n: int
    screening: Screening | None = None
    confirmation: Confirmation | None = None


Entry = Annotated[
    Opened | Session | Baselined | Proposed | Confirming | Judged | Settled | Remeasured | Finished,
    Field(discriminator="kind"),
]
ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
