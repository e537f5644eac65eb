"""The lines of a ledger: one frozen record a kind, told apart by `kind`. docs/reference/records.md explains each field.

opened      the run began: case, base commit, what judges
session     a controller took the run up (the only kind that depends on how often it was interrupted)
baselined   the baseline passed the gate; its time and the noise floor
proposed    candidate n, before anything is done with it
confirming  candidate n goes to fresh pairs with its share of the run's alpha
profiled    a look inside the baseline or an incumbent
turned      the rhythm moved on to another phase, and why
called      one request to the model, what it cost and what came of it
dropped     a usable reply that will not become a candidate, and why
judged      candidate n's verdict, and the commit and ref about to be written (the intent)
settled     that ref is written (done)
notified    what became of the post about candidate n
remeasured  first commit against last
finished    a budget, the patience or the user ended the climb
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from hillclimb.agent.proposal import Proposal
from hillclimb.harness.records import (
    Confirmation,
    Estimate,
    GateReport,
    GuardrailReport,
    Interval,
    MetricReport,
    Profile,
    Provenance,
    Reason,
    Record,
    Screening,
    last_estimate,
)


class OpenedEntry(Record):
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


class BudgetsInForce(Record):
    """The budgets that a session climbs by: as typed, else as case.yaml has them."""

    seconds: float
    candidates: int
    patience: int
    tokens: int | None = None
    """None: no limit."""
    cost: float | None = None
    """US dollars; None: no limit."""
    until: float | None = None
    """The speedup over the baseline at which the run has reached its target; None: it has none."""


class SessionEntry(Record):
    kind: Literal["session"] = "session"
    time: float
    pid: int
    host: str
    budgets: BudgetsInForce | None = None
    """None where none applies, as to a candidate brought by hand."""


class BaselinedEntry(Record):
    kind: Literal["baselined"] = "baselined"
    time: float
    gate: GateReport
    seconds_per_call: float
    pair_sd: float
    """Noise floor: standard deviation of one A/A pair's log ratio."""
    noise: Interval
    """A/A speedup; an honest judge's interval contains 1."""
    metrics: tuple[MetricReport, ...] = ()
    """Of a command."""
    seconds: float


class ProposedEntry(Record):
    kind: Literal["proposed"] = "proposed"
    n: int
    time: float
    proposal: Proposal


class ConfirmingEntry(Record):
    kind: Literal["confirming"] = "confirming"
    n: int
    k: int
    """How many confirmations the run has begun, this one included."""
    alpha: float


class JudgedEntry(Record):
    kind: Literal["judged"] = "judged"
    n: int
    time: float
    kept: bool
    reason: Reason | None = None
    detail: str = ""
    gate: GateReport | None = None
    screened: float | None = None
    """Speedup over the incumbent seen on the screening pair; a lead, not a claim."""
    decided: Estimate | None = None
    """Over the deciding pairs, whichever way they decided. None in ledgers from before it was recorded, too."""
    refuted: Interval | None = None
    """Over the report pairs, where they did not bear the decision out."""
    speedup: Interval | None = None
    cumulative: Interval | None = None
    seconds_per_call: float | None = None
    metrics: tuple[MetricReport, ...] = ()
    """Of a command, where it was measured afresh."""
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

    @property
    def estimate(self) -> Estimate | None:
        """What the last stage that timed it saw; None where none did."""
        return last_estimate(self.screened, self.decided, self.speedup or self.refuted)


class WebhookState(Record):
    """Whether a post about an evaluation was due, and what became of it."""

    webhook_enabled_by_config: bool = False
    """A webhook is configured."""
    webhook_disabled_by_flag: bool = False
    """It was switched off for this call, with --no-webhook."""
    webhook_expected: bool = False
    """A post is due: configured, not switched off, and something that is posted about (a win)."""
    webhook_attempted: bool = False
    """At least one request was sent."""
    webhook_sent: bool = False
    """Discord took it."""
    webhook_status: str = "not configured"
    """In words: not configured, switched off, not due, queued, sent, or what went wrong."""


class SettledEntry(Record):
    kind: Literal["settled"] = "settled"
    n: int
    webhook: WebhookState = WebhookState()
    """As it stood when the ref was written; a post goes out afterwards, see `notified`."""


class NotifiedEntry(Record):
    kind: Literal["notified"] = "notified"
    n: int
    time: float
    webhook: WebhookState


Phase = Literal["sweep", "edit", "ablate"]


class ProfiledEntry(Record):
    kind: Literal["profiled"] = "profiled"
    time: float
    commit: str
    profile: Profile


class TurnedEntry(Record):
    kind: Literal["turned"] = "turned"
    time: float
    n: int
    """The first candidate of the new phase."""
    phase: Phase
    family: str = ""
    """The one family of ideas that an edit block is about."""
    reason: str
    """Why the phase before it ended, in words and figures."""
    signals: tuple[str, ...] = ()
    """The plateau signals that stood then, by name."""


class TokenUsage(Record):
    """Tokens of one call, all its attempts together."""

    prompt: int = 0
    cached: int = 0
    """Of the prompt, read from the provider's cache."""
    completion: int = 0
    """Reasoning included."""
    reasoning: int = 0
    estimated: bool = False
    """The server did not say, or said nonsense: counted from the texts."""
    assumed: int = 0
    """Of all tokens, those that no server told: counted from the texts, or the most that a lost answer may have."""

    @property
    def total(self) -> int:
        return self.prompt + self.completion


class DroppedEntry(Record):
    """A usable reply that does not become a candidate."""

    kind: Literal["dropped"] = "dropped"
    k: int
    """The call."""
    time: float
    reason: Literal["duplicate", "stale", "lost"]
    """duplicate: it was tried before; stale: the incumbent moved on and the change does not fit any more; lost: its
    file calls/<k>.json is gone."""
    detail: str


class Idea(Record):
    """One entry of the written candidate set."""

    family: str
    idea: str


class CalledEntry(Record):
    """calls/<k>.json holds the messages and the reply."""

    kind: Literal["called"] = "called"
    k: int
    """Calls are numbered from 1 in the order in which they ended."""
    time: float
    seconds: float
    model: str
    incumbent: str
    """The commit whose files the briefing showed."""
    family: str = ""
    """The family it was asked about."""
    repairs: int | None = None
    """The call whose reply this one mends."""
    turn: int = 0
    """0 for a first reply, then 1, 2, ... along its repairs."""
    outcome: Literal["proposal", "fault", "unusable"]
    """proposal: it waits to become a candidate; fault: no reply came; unusable: it cannot be read or applied."""
    fault: str = ""
    """Which fault, out of hillclimb.agent.llm.client.faults.Fault; empty where a reply came."""
    detail: str = ""
    """What was wrong, as it would be told to the model."""
    attempts: int = 1
    usage: TokenUsage = TokenUsage()
    cost: float | None = None
    """US dollars; None where no prices are known."""
    idea: str = ""
    note: str = ""
    """What the model wants remembered."""
    ideas: tuple[Idea, ...] = ()
    """What it would try next, for the candidate set."""


class RemeasuredEntry(Record):
    kind: Literal["remeasured"] = "remeasured"
    time: float
    commit: str
    speedup: Interval
    seconds_per_call: tuple[float, float]


class FinishedEntry(Record):
    kind: Literal["finished"] = "finished"
    time: float
    reason: str
    interrupted: bool = False
    """The user ended it; the next climb takes the run up again without being asked to."""
    importances: dict[str, float] = Field(default_factory=dict)
    """Each knob's share in what made candidates fast, as the proposer reckons it."""
    importances_missing: str = ""
    """Why there are none, in words; empty where there are, or nobody reckons any."""


class Samples(Record):
    """samples/<n>.json: everything the judge said of candidate n, raw pairs included. Beside the ledger, not in it."""

    n: int
    screening: Screening | None = None
    confirmation: Confirmation | None = None


Entry = Annotated[
    OpenedEntry
    | SessionEntry
    | BaselinedEntry
    | ProfiledEntry
    | TurnedEntry
    | CalledEntry
    | DroppedEntry
    | ProposedEntry
    | ConfirmingEntry
    | JudgedEntry
    | SettledEntry
    | NotifiedEntry
    | RemeasuredEntry
    | FinishedEntry,
    Field(discriminator="kind"),
]
ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
