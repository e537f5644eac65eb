"""What a climb tells whoever watches: frozen records told apart by `event`; `--json` prints them as they are.

Events are for eyes and programs; nothing is ever read back from them. The ledger is the record.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, TypeAdapter

from hillclimb.agent.proposal import Author, Proposal
from hillclimb.agent.record.entries import (
    BaselinedEntry,
    BudgetsInForce,
    CalledEntry,
    JudgedEntry,
    Phase,
    TurnedEntry,
)
from hillclimb.harness.records import Estimate, GateReport, Interval, MetricReport, Provenance, Reason, Record

if TYPE_CHECKING:
    from hillclimb.agent.record.ledger import Ledger


class RemainingBudget(Record):
    """What is left of the budgets."""

    seconds: float
    candidates: int
    patience: int
    """Candidates that may still fail in a row before the run counts as stuck."""
    share: float
    """The scarcest of them, as a share of the whole, 1 down to 0; patience aside."""
    tokens: int | None = None
    """None without a budget of tokens."""
    cost: float | None = None
    """US dollars; None without a budget of them."""


class OpenedEvent(Record):
    event: Literal["opened"] = "opened"
    time: float
    case: str
    tag: str
    branch: str
    """Short name, as `git log` takes it."""
    folder: str
    """The run folder, absolute."""
    resumed: bool
    provenance: Provenance
    sources: str = ""
    """Where the ideas come from, in words; empty where that is not known."""
    candidates: int = 0
    """Judged in earlier sessions; 0 on a first one."""
    best: tuple[float, ...] = ()
    """Speedup over the baseline after each earlier win."""
    cumulative: Interval | None = None
    budgets: BudgetsInForce | None = None
    """None where none applies."""
    left: RemainingBudget | None = None
    """Of these budgets."""

    @classmethod
    def of(cls, ledger: Ledger, folder: Path, *, time: float, provenance: Provenance) -> OpenedEvent:
        """What the ledger of the run in `folder` holds so far."""
        best = [win.judged.cumulative for win in ledger.wins if win.judged]
        case, tag = "/".join(folder.parts[-3:-1]), folder.name
        return cls(
            time=time,
            case=case,
            tag=tag,
            branch=branch_of(folder),
            folder=str(folder),
            resumed=ledger.judged > 0,
            provenance=provenance,
            candidates=ledger.judged,
            best=tuple(cumulative.estimate for cumulative in best if cumulative),
            cumulative=ledger.cumulative_interval,
        )


class BaselinedEvent(Record):
    event: Literal["baselined"] = "baselined"
    time: float
    gate: GateReport
    seconds_per_call: float
    pair_sd: float
    noise: Interval

    @classmethod
    def of(cls, line: BaselinedEntry) -> BaselinedEvent:
        """What a ledger's line says."""
        return cls(
            time=line.time,
            gate=line.gate,
            seconds_per_call=line.seconds_per_call,
            pair_sd=line.pair_sd,
            noise=line.noise,
        )


class TurnedEvent(Record):
    event: Literal["turned"] = "turned"
    time: float
    phase: Phase
    family: str
    reason: str
    signals: tuple[str, ...]

    @classmethod
    def of(cls, line: TurnedEntry) -> TurnedEvent:
        """What a ledger's line says."""
        return cls(
            time=line.time, phase=line.phase, family=line.family, reason=line.reason, signals=line.signals
        )


class CalledEvent(Record):
    event: Literal["called"] = "called"
    time: float
    k: int
    outcome: str
    fault: str
    detail: str
    idea: str
    seconds: float
    tokens: int
    """Of this call."""
    cost: float | None
    run_tokens: int
    """Of the run so far."""
    run_cost: float

    @classmethod
    def of(cls, line: CalledEntry, ledger: Ledger) -> CalledEvent:
        """What a ledger's line says, once the ledger holds it."""
        return cls(
            time=line.time,
            k=line.k,
            outcome=line.outcome,
            fault=line.fault,
            detail=line.detail,
            idea=line.idea,
            seconds=line.seconds,
            tokens=line.usage.total,
            cost=line.cost,
            run_tokens=ledger.tokens,
            run_cost=ledger.cost,
        )


class ProposedEvent(Record):
    event: Literal["proposed"] = "proposed"
    time: float
    n: int
    author: Author
    idea: str
    family: str = ""

    @classmethod
    def of(cls, n: int, proposal: Proposal, time: float) -> ProposedEvent:
        """Candidate n, from the ledger."""
        return cls(time=time, n=n, author=proposal.author, idea=proposal.idea, family=proposal.family)


class ProgressEvent(Record):
    event: Literal["progress"] = "progress"
    time: float
    n: int | None
    """The candidate; None while the baseline or the noise floor is measured."""
    stage: str
    """prepare, gate, noise, screen, decide, alone, report, cumulative, guardrail."""
    done: int
    of: int
    speedup: float | None


class JudgedEvent(Record):
    event: Literal["judged"] = "judged"
    time: float
    n: int
    kept: bool
    reason: Reason | None
    detail: str
    screened: float | None
    """Speedup on the screening pair: a lead, not a claim."""
    estimate: Estimate | None
    """Over the incumbent, by the last stage that timed it; None where none did."""
    speedup: Interval | None
    """Over the incumbent."""
    cumulative: Interval | None
    """Over the baseline."""
    metrics: tuple[MetricReport, ...] = ()
    """Of a command."""
    commit: str | None
    candidates: int
    """Judged in the run so far, this one included."""
    wins: int
    elapsed: float
    """Seconds of work over all sessions."""
    per_hour: float
    """Candidates an hour in this session."""
    left: RemainingBudget | None = None

    @classmethod
    def of(
        cls,
        line: JudgedEntry,
        ledger: Ledger,
        *,
        time: float,
        elapsed: float,
        per_hour: float,
        left: RemainingBudget | None = None,
    ) -> JudgedEvent:
        """What a ledger's line says, once the ledger holds it; the rest is the watcher's own clock."""
        return cls(
            time=time,
            n=line.n,
            kept=line.kept,
            reason=line.reason,
            detail=line.detail,
            screened=line.screened,
            estimate=line.estimate,
            speedup=line.speedup,
            cumulative=line.cumulative,
            metrics=line.metrics,
            commit=line.commit,
            candidates=ledger.judged,
            wins=len(ledger.wins),
            elapsed=elapsed,
            per_hour=per_hour,
            left=left,
        )


class TroubleEvent(Record):
    """The machine, not a candidate, misbehaves; the climb says so once and copes."""

    event: Literal["trouble"] = "trouble"
    time: float
    message: str


class FinishedEvent(Record):
    event: Literal["finished"] = "finished"
    time: float
    reason: str
    interrupted: bool
    """The user asked for it; the same command goes on."""
    begun: bool = True
    """Whether the baseline was measured; without it there is nothing to go on with."""
    candidates: int
    wins: int
    cumulative: Interval | None
    """First commit against last, measured afresh at the end where it could be."""
    when_kept: Interval | None = None
    """The same as measured when the last win was kept, where `cumulative` was measured after that."""
    importances: dict[str, float]
    """Each knob's share in what made candidates fast, largest first."""
    importances_missing: str = ""
    """Why there are none, in words; empty where there are, or nobody reckons any."""
    tokens: int = 0
    """Of all model calls of the run."""
    assumed_tokens: int = 0
    """Of them, those that no server told."""
    cost: float = 0.0
    """US dollars of those whose price is known."""
    branch: str
    folder: str

    @classmethod
    def of(
        cls, ledger: Ledger, folder: Path, *, time: float, reason: str, interrupted: bool
    ) -> FinishedEvent:
        """How the run in `folder` ended, by its ledger."""
        return cls(
            time=time,
            reason=reason,
            interrupted=interrupted,
            begun=ledger.baselined is not None,
            candidates=ledger.judged,
            wins=len(ledger.wins),
            cumulative=ledger.cumulative_interval,
            when_kept=_overtaken(ledger),
            importances=ledger.finished.importances if ledger.finished else {},
            importances_missing=ledger.finished.importances_missing if ledger.finished else "",
            tokens=ledger.tokens,
            assumed_tokens=ledger.assumed_tokens,
            cost=ledger.cost,
            branch=branch_of(folder),
            folder=str(folder),
        )


def _overtaken(ledger: Ledger) -> Interval | None:
    kept = ledger.cumulative_when_kept
    return kept if kept != ledger.cumulative_interval else None


def branch_of(folder: Path) -> str:
    """Short name of the branch of the run in `folder`."""
    return f"hillclimb/{'/'.join(folder.parts[-3:])}"


Event = Annotated[
    OpenedEvent
    | BaselinedEvent
    | TurnedEvent
    | CalledEvent
    | ProposedEvent
    | ProgressEvent
    | JudgedEvent
    | TroubleEvent
    | FinishedEvent,
    Field(discriminator="event"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)

Emit = Callable[[Event], None]
