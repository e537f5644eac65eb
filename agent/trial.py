"""One candidate's trial: built, screened, confirmed; what comes out decides everything that is recorded of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from agent.candidate import Builder, Built
from agent.entries import Confirming, Judged, Samples
from agent.ledger import Candidate, Ledger
from agent.proposal import Proposal
from agent.supervision import Supervised
from harness.errors import CandidateFault, MachineError, StorageError
from harness.judge.evidence import spend
from harness.judge.protocol import Watch
from harness.records import Confirmation, Reason, Screening, Side

REMEMBERED = 16
"""Candidates that are not built again when they are asked about; more than are ever foreseen."""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended."""

    reason: Reason | None
    """None: it is kept."""
    detail: str = ""
    tree: str | None = None
    screening: Screening | None = None
    confirmation: Confirmation | None = None


@dataclass(frozen=True)
class Court:
    """What a trial needs: who builds, who judges, the other sides, and the run's error budget."""

    builder: Builder
    judge: Supervised
    sandbox: str
    """The rung in force; on `none`, code that a proposal wrote is not run."""
    baseline: Side
    alpha: float
    ahead: int = 0
    """How many proposals the climb looks ahead; 0: the judge is told nothing early."""
    _built: dict[str, Built] = field(default_factory=dict, init=False)
    """What was built of late; the trees may be gone again."""

    def build(self, proposal: Proposal, incumbent: str) -> Built:
        """As the builder does, but nothing twice of what was built ahead."""
        name = f"{incumbent} {proposal.model_dump_json()}"
        found = self._built.pop(name, None)
        if found is None or not _stands(found):
            found = self.builder.build(proposal, incumbent)
        self._built[name] = found
        for oldest in list(self._built)[:-REMEMBERED]:
            del self._built[oldest]
        return found


def try_candidate(court: Court, ledger: Ledger, candidate: Candidate, watch: Watch) -> Outcome:
    """Build the candidate and bring it before the judge, as far as it gets.

    Raises MachineError where the machine fails over the incumbent as well; that is never a verdict.
    """
    unfenced = why_unfenced(court, candidate.proposal)
    if unfenced:
        return Outcome(Reason.POLICY, unfenced)
    try:
        built = court.build(candidate.proposal, ledger.incumbent)
    except CandidateFault as fault:
        return Outcome(fault.reason, fault.detail)
    before = judged_before(ledger, built.tree)
    if before:
        return Outcome(
            Reason.DOES_NOT_APPLY, f"the same tree as candidate {before.n}, judged already", built.tree
        )
    incumbent = court.builder.side(ledger.incumbent)
    try:
        return _judge(court, ledger, candidate, built, incumbent, watch)
    except StorageError:
        raise
    except MachineError:
        if not court.judge.ask(lambda judge: judge.gate(incumbent, watch)).passed:
            raise
    # The machine answers again. Was it the candidate, or had the machine a bad minute?
    try:
        return _judge(court, ledger, ledger.candidates[-1], built, incumbent, watch)
    except StorageError:
        raise
    except MachineError as error:
        if not court.judge.ask(lambda judge: judge.gate(incumbent, watch)).passed:
            raise
        detail = f"judges fail over it again and again, and not over the incumbent: {error}"
        return Outcome(Reason.BROKE_JUDGE, detail, built.tree)


def _stands(built: Built) -> bool:
    """Whether its folders are there."""
    return all(Path(side.tree).is_dir() for side in (built.screened, built.confirmed))


def _judge(
    court: Court, ledger: Ledger, candidate: Candidate, built: Built, incumbent: Side, watch: Watch
) -> Outcome:
    screening = court.judge.ask(lambda judge: judge.screen(built.screened, incumbent, watch))
    if screening.reason:
        return Outcome(screening.reason, screening.detail, built.tree, screening)
    confirmation = _confirm(court, ledger, candidate, built, incumbent, watch)
    reason, detail = _decision(confirmation, bool(candidate.proposal.knobs))
    return Outcome(reason, detail, built.tree, screening, confirmation)


def to_verdict(outcome: Outcome, n: int, time: float, parent: str) -> Judged:
    """The ledger's line for an outcome, without the commit that is yet to be made."""
    screening, confirmation = outcome.screening, outcome.confirmation
    latest = confirmation or screening
    return Judged(
        n=n,
        time=time,
        kept=outcome.reason is None,
        reason=outcome.reason,
        detail=outcome.detail,
        gate=latest.gate if latest else None,
        screened=screening.speedup if screening else None,
        speedup=confirmation.speedup if confirmation else None,
        cumulative=confirmation.cumulative if confirmation else None,
        seconds_per_call=confirmation.seconds_per_call if confirmation else None,
        e_value=confirmation.e_value if confirmation else None,
        guardrails=confirmation.guardrails if confirmation else (),
        tree=outcome.tree,
        parent=parent,
        seconds=(screening.seconds if screening else 0.0) + (confirmation.seconds if confirmation else 0.0),
    )


def to_samples(outcome: Outcome, n: int) -> Samples:
    """What goes into samples/<n>.json."""
    return Samples(n=n, screening=outcome.screening, confirmation=outcome.confirmation)


def why_unfenced(court: Court, proposal: Proposal) -> str:
    """Why the proposal may not be run here at all; empty where it may."""
    if proposal.edits and court.sandbox == "none":
        return "without a sandbox (--trust-workspace) only knob values are tried, never edited code"
    return ""


def judged_before(ledger: Ledger, tree: str) -> Candidate | None:
    """The candidate with this very tree that met the same incumbent, if there was one."""
    since = ledger.wins[-1].n if ledger.wins else 0
    return next((c for c in ledger.candidates[since:] if c.judged and c.judged.tree == tree), None)


def _confirm(
    court: Court, ledger: Ledger, candidate: Candidate, built: Built, incumbent: Side, watch: Watch
) -> Confirmation:
    """Decide over fresh pairs, at the share of alpha that the ledger sets aside first, and only once."""
    share = candidate.confirming
    if share is None:
        k = ledger.confirmations + 1
        share = Confirming(n=candidate.n, k=k, alpha=spend(court.alpha, k))
        ledger.append(share)
    alpha = share.alpha
    if court.ahead and built.confirmed != built.screened:
        court.judge.hint(built.confirmed, built.screened)  # the same kernels, so there is little to compile
    return court.judge.ask(
        lambda judge: judge.confirm(built.confirmed, incumbent, court.baseline, alpha, watch)
    )


def _decision(confirmation: Confirmation, has_knobs: bool) -> tuple[Reason | None, str]:
    if has_knobs and not confirmation.gate.passed:
        said = f"{confirmation.reason}: {confirmation.detail}"
        return Reason.PROMOTION_FAILED, f"with the knobs as source defaults the gate fails ({said})"
    return confirmation.reason, confirmation.detail
