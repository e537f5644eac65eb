"""What a review found, as a record, and in words for people: then and now, and what follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from hillclimb.agent.record.trailers import to_one_line
from hillclimb.harness.records import Estimate, Interval, Provenance, Reason, Record

_WIDTH = 2000

ReviewFinding = Literal["confirmed", "not_confirmed", "reversed"]
"""confirmed: faster, proven anew; reversed: slower; not_confirmed: neither is shown, or the gate rejects it."""

ReviewKind = Literal["duel", "first-last"]
"""duel: gate, screening, decision; first-last: measured, without a decision."""


class Claim(Record):
    """What the commit's trailers say."""

    verdict: str
    """kept, rejected, or empty where the commit makes no claim."""
    reason: str
    speedup: Interval | None
    """Over the side of this review; None where nothing was claimed about that."""
    device: str
    device_id: str


class ReviewResult(Record):
    """What `hillclimb review` found."""

    case: str
    run: str
    """`<family>/<case>/<tag>`; empty where the commit does not say."""
    n: int | None
    idea: str
    commit: str
    against: str
    """Commit."""
    kind: ReviewKind
    finding: ReviewFinding
    reason: Reason | None
    detail: str
    claim: Claim
    speedup: Interval | None
    """Measured now; None where it did not come to that."""
    screened: float | None
    """What the screening pair showed; a lead, not a claim."""
    estimate: Estimate | None
    """What the last stage that timed it saw, in a duel."""
    agrees: bool | None
    """Whether the claimed and the measured interval overlap; None where one of them is missing."""
    same_device: bool | None
    """Whether it was judged on this very device then; None where the commit does not say."""
    provenance: Provenance
    """Of the judge that measured now."""
    notes: tuple[str, ...] = ()
    """What makes then and now hard to compare, a sentence each."""


def describe(found: ReviewResult) -> str:
    """Then and now, and what follows, for people."""
    return "\n".join(to_one_line(line, _WIDTH) for line in _lines(found))


def _lines(found: ReviewResult) -> Iterator[str]:
    about = f"candidate {found.n} of {found.run}: {found.idea}" if found.run else found.case
    yield f"{found.commit[:12]} against {found.against[:12]}: {about}"
    yield f"then: {_describe_claim(found.claim)}"
    yield f"now:  {_describe_measurement(found)}"
    yield f"{found.finding.replace('_', ' ')}{_comparison(found)}"
    yield from (f"note: {note}" for note in found.notes)


def _describe_claim(claim: Claim) -> str:
    if not claim.verdict:
        return "the commit claims nothing"
    said = f"{claim.verdict} ({claim.reason})" if claim.reason else claim.verdict
    device = f" on {claim.device}" if claim.device else ""
    return f"{said} {claim.speedup or 'with no speedup over this side'}{device}"


def _describe_measurement(found: ReviewResult) -> str:
    seen = f" ({found.estimate})" if found.estimate else ""
    measured = str(found.speedup) if found.speedup else f"no proven speedup{seen}"
    why = f"; {found.reason}: {found.detail}" if found.reason else ""
    return f"{measured} on {found.provenance.device}{why}"


def _comparison(found: ReviewResult) -> str:
    if found.agrees is None:
        return ""
    if found.agrees:
        return ": the intervals overlap"
    then, now = found.claim.speedup, found.speedup
    faster = then is not None and now is not None and now.estimate > then.estimate
    return f": the intervals do not overlap, and it is {'more' if faster else 'less'} than was claimed"
