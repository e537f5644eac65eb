"""What became of model calls, read off the ledger: which wait, which may be mended, which came to nothing."""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.agent.llm.client.faults import Fault
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.entries import CalledEntry
from hillclimb.agent.record.ledger import Candidate, Ledger
from hillclimb.harness.records import Reason

UNREPAIRABLE_REASONS = frozenset({Reason.SLOWER, Reason.NO_PROVEN_GAIN, Reason.GUARDRAIL, Reason.BROKE_JUDGE})
"""Rejections that say the idea is no good; every other one names what its author may mend."""
PAID_FAULTS = frozenset(
    {
        Fault.TRUNCATED,
        Fault.REFUSED,
        Fault.NO_CONTENT,
        Fault.NO_CHOICES,
        Fault.TOO_LARGE,
        Fault.BAD_REQUEST,
        Fault.BROKEN_JSON,
        Fault.EMPTY_BODY,
    }
)
"""Faults of what was answered, rather than of the way to it, which may be an outage."""


def queued_calls(ledger: Ledger) -> Iterator[CalledEntry]:
    """Usable replies that are neither candidates nor dropped, oldest first."""
    for call in ledger.calls:
        if (
            call.outcome == "proposal"
            and call.k not in ledger.candidate_by_call
            and call.k not in ledger.dropped
        ):
            yield call


def repairable_calls(ledger: Ledger, most_turns: int) -> Iterator[CalledEntry]:
    """Calls about today's incumbent that were not mended yet and may be, oldest first."""
    mended = {call.repairs for call in ledger.calls}
    for call in ledger.calls:
        is_open = call.outcome != "fault" and call.k not in mended and call.turn < most_turns
        if is_open and call.incumbent == ledger.incumbent:
            yield call


def repair_message(ledger: Ledger, call: CalledEntry) -> str:
    """What to tell the model about its reply; empty where there is nothing to mend, or not yet."""
    if call.outcome == "unusable":
        return call.detail
    dropped = ledger.dropped.get(call.k)
    if dropped:
        return f"{dropped.detail}. Propose something else" if dropped.reason == "duplicate" else ""
    n = ledger.candidate_by_call.get(call.k)
    judged = ledger.candidates[n - 1].judged if n else None
    if judged is None or judged.reason is None or judged.reason in UNREPAIRABLE_REASONS:
        return ""
    return f"candidate #{n} was rejected: {judged.reason}: {judged.detail}"


def fruitless_replies(ledger: Ledger, since: int) -> list[str]:
    """What was wrong with the latest replies in a row that came to nothing, the last one first; from call `since` on.

    What is not decided yet, what only came too late, and calls without a reply count neither way.
    """
    row = []
    for call in reversed(ledger.calls[since:]):
        if call.k in ledger.candidate_by_call:
            break
        dropped = ledger.dropped.get(call.k)
        if call.outcome == "unusable" or call.fault in PAID_FAULTS:
            row.append(call.detail or call.fault)
        elif dropped and dropped.reason == "duplicate":
            row.append(dropped.detail)
    return row


def describe_duplicate(ledger: Ledger, proposal: Proposal) -> str:
    """Which candidate was the same idea, and what became of it; empty where none was."""
    n = ledger.candidate_by_fingerprint.get(proposal.fingerprint)
    return (
        f"it is the same as candidate #{n}, which was {_describe_outcome(ledger.candidates[n - 1])}"
        if n
        else ""
    )


def _describe_outcome(candidate: Candidate) -> str:
    judged = candidate.judged
    if judged is None:
        return "proposed already"
    if judged.kept:
        return "kept"
    return f"rejected: {judged.reason}" + (f" ({judged.estimate})" if judged.estimate else "")
