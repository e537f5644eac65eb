"""One candidate's trial: built, screened, confirmed; what comes out decides everything that is recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from hillclimb.agent.climb.candidate import BuiltCandidate, CandidateBuilder
from hillclimb.agent.climb.supervision import JudgeSupervisor
from hillclimb.agent.climb.timekeeper import Timekeeper
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.entries import ConfirmingEntry, JudgedEntry, Samples
from hillclimb.agent.record.ledger import Candidate, Ledger
from hillclimb.harness.errors import CandidateFault, MachineError, StorageError
from hillclimb.harness.judge.protocol import Judge
from hillclimb.harness.records import Confirmation, Reason, Screening, Side, Watch
from hillclimb.harness.statistics.evidence import alpha_share

T = TypeVar("T")

BUILD_CACHE_SIZE = 16
"""Candidates that are not built again when they are asked about; more than are ever foreseen."""


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended."""

    reason: Reason | None
    """None: it is kept."""
    detail: str = ""
    tree: str | None = None
    screening: Screening | None = None
    confirmation: Confirmation | None = None


@dataclass(frozen=True)
class TrialSides:
    """Who meets whom in a trial."""

    screened: Side
    """The candidate as it is first tried."""
    confirmed: Side
    """The candidate as it would be committed."""
    incumbent: Side
    baseline: Side


class Ask(Protocol):
    """Puts a question to a judge and gives its answer."""

    def __call__(self, question: Callable[[Judge], T], /) -> T: ...


@dataclass(frozen=True)
class TrialContext:
    """What a trial needs: who builds, who judges, the other sides, and the run's error budget."""

    builder: CandidateBuilder
    judge: JudgeSupervisor
    sandbox: str
    """The rung in force; on `none`, code that a proposal wrote is not run."""
    baseline: Side
    alpha: float
    timekeeper: Timekeeper
    lookahead_count: int = 0
    """How many proposals the climb looks ahead; 0: the judge is told nothing early."""
    _build_cache: dict[str, BuiltCandidate] = field(default_factory=dict, init=False)
    """What was built of late; the trees may be gone again."""

    def build(self, proposal: Proposal, incumbent: str) -> BuiltCandidate:
        """As the builder does, but nothing twice of what was built ahead."""
        name = f"{incumbent} {proposal.model_dump_json()}"
        found = self._build_cache.pop(name, None)
        if found is None or not _has_folders(found):
            found = self.builder.build(proposal, incumbent)
        self._build_cache[name] = found
        for oldest in list(self._build_cache)[:-BUILD_CACHE_SIZE]:
            del self._build_cache[oldest]
        return found


def try_candidate(context: TrialContext, ledger: Ledger, candidate: Candidate, watch: Watch) -> TrialOutcome:
    """Build the candidate and bring it before the judge, as far as it gets.

    Raises MachineError where the machine fails over the incumbent as well; that is never a verdict. Raises BudgetSpent
    where there is no time for a decision, or it ran out; then the candidate has no verdict yet.
    """
    unfenced = why_unsandboxed(context, candidate.proposal)
    if unfenced:
        return TrialOutcome(Reason.POLICY, unfenced)
    try:
        built = context.build(candidate.proposal, ledger.incumbent)
    except CandidateFault as fault:
        return TrialOutcome(fault.reason, fault.detail)
    before = find_same_tree(ledger, built.tree)
    if before:
        return TrialOutcome(
            Reason.DOES_NOT_APPLY, f"the same tree as candidate {before.n}, judged already", built.tree
        )
    unchanged = context.builder.why_unchanged(built, ledger.incumbent)
    if unchanged:
        return TrialOutcome(Reason.DOES_NOT_APPLY, f"nothing that runs would change: {unchanged}", built.tree)
    incumbent = context.builder.side(ledger.incumbent)
    sides = TrialSides(built.screened, built.confirmed, incumbent, context.baseline)

    def judge_once() -> TrialOutcome:
        share = partial(_reserve_alpha, context, ledger, candidate.n, built)
        return replace(judge_sides(context.judge.ask, sides, share, watch), tree=built.tree)

    try:
        return judge_once()
    except StorageError:
        raise
    except MachineError:
        if not context.judge.ask(lambda judge: judge.gate(incumbent, watch)).passed:
            raise
    # The machine answers again. Was it the candidate, or had the machine a bad minute?
    try:
        return judge_once()
    except StorageError:
        raise
    except MachineError as error:
        if not context.judge.ask(lambda judge: judge.gate(incumbent, watch)).passed:
            raise
        detail = f"judges fail over it again and again, and not over the incumbent: {error}"
        return TrialOutcome(Reason.BROKE_JUDGE, detail, built.tree)


def _has_folders(built: BuiltCandidate) -> bool:
    """Whether its folders are there."""
    return all(Path(side.tree).is_dir() for side in (built.screened, built.confirmed))


def judge_sides(
    ask: Ask, sides: TrialSides, reserve_alpha: Callable[[], float], watch: Watch
) -> TrialOutcome:
    """The one road from two trees to a verdict: screen on one pair of processes, confirm over fresh pairs.

    `reserve_alpha` gives the error probability that the confirmation may use; it is called only if there is one.
    """
    screening = ask(lambda judge: judge.screen(sides.screened, sides.incumbent, watch))
    if screening.reason:
        return TrialOutcome(screening.reason, screening.detail, screening=screening)
    alpha = reserve_alpha()
    confirmation = ask(
        lambda judge: judge.confirm(sides.confirmed, sides.incumbent, sides.baseline, alpha, watch)
    )
    reason, detail = _decision(confirmation, promotes_knobs=sides.confirmed != sides.screened)
    return TrialOutcome(reason, detail, screening=screening, confirmation=confirmation)


def to_verdict(outcome: TrialOutcome, n: int, time: float, parent: str) -> JudgedEntry:
    """The ledger's line for an outcome, without the commit that is yet to be made."""
    screening, confirmation = outcome.screening, outcome.confirmation
    latest = confirmation or screening
    return JudgedEntry(
        n=n,
        time=time,
        kept=outcome.reason is None,
        reason=outcome.reason,
        detail=outcome.detail,
        gate=latest.gate if latest else None,
        screened=screening.speedup if screening else None,
        decided=confirmation.decided if confirmation else None,
        refuted=confirmation.refuted if confirmation else None,
        speedup=confirmation.speedup if confirmation else None,
        cumulative=confirmation.cumulative if confirmation else None,
        seconds_per_call=confirmation.seconds_per_call if confirmation else None,
        metrics=confirmation.metrics if confirmation else (),
        e_value=confirmation.e_value if confirmation else None,
        guardrails=confirmation.guardrails if confirmation else (),
        tree=outcome.tree,
        parent=parent,
        seconds=(screening.seconds if screening else 0.0) + (confirmation.seconds if confirmation else 0.0),
    )


def to_samples(outcome: TrialOutcome, n: int) -> Samples:
    """What goes into samples/<n>.json."""
    return Samples(n=n, screening=outcome.screening, confirmation=outcome.confirmation)


def why_unsandboxed(context: TrialContext, proposal: Proposal) -> str:
    """Why the proposal may not be run here at all; empty where it may."""
    if proposal.edits and context.sandbox == "none":
        return "without a sandbox (--trust-workspace) only knob values are tried, never edited code"
    return ""


def find_same_tree(ledger: Ledger, tree: str) -> Candidate | None:
    """The candidate with this very tree that met the same incumbent, if there was one."""
    since = ledger.wins[-1].n if ledger.wins else 0
    return next((c for c in ledger.candidates[since:] if c.judged and c.judged.tree == tree), None)


def _reserve_alpha(context: TrialContext, ledger: Ledger, n: int, built: BuiltCandidate) -> float:
    """The share of alpha that the ledger sets aside for this confirmation, first and only once.

    Raises BudgetSpent where there is no time for it.
    """
    context.timekeeper.require_decision(ledger)
    share = ledger.candidates[n - 1].confirming
    if share is None:
        k = ledger.confirmations + 1
        share = ConfirmingEntry(n=n, k=k, alpha=alpha_share(context.alpha, k))
        ledger.append(share)
    if context.lookahead_count and built.confirmed != built.screened:
        context.judge.hint(built.confirmed, built.screened)  # the same kernels, so there is little to compile
    return share.alpha


def _decision(confirmation: Confirmation, *, promotes_knobs: bool) -> tuple[Reason | None, str]:
    if promotes_knobs and not confirmation.gate.passed:
        said = f"{confirmation.reason}: {confirmation.detail}"
        return Reason.PROMOTION_FAILED, f"with the knobs as source defaults the gate fails ({said})"
    return confirmation.reason, confirmation.detail
