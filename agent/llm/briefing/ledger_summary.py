"""What a ledger says to whoever proposes next: every candidate and every reply in exactly one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hillclimb.agent.llm.briefing.call_history import queued_calls
from hillclimb.agent.llm.briefing.quoting import quoted
from hillclimb.agent.rhythm.families import Family, families, is_edit, slug
from hillclimb.agent.screen.durations import describe_seconds
from hillclimb.harness.knobs.knobs import to_environment
from hillclimb.harness.records import Reason
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.agent.record.entries import CalledEntry, JudgedEntry
    from hillclimb.agent.record.ledger import Candidate, Ledger

MAX_DETAIL_CHARS = 160
"""Characters of a rejection's detail that fit its one line."""
MAX_FAMILIES = 20
MAX_QUEUED_IDEAS = 16


@dataclass(frozen=True)
class RejectedIdea:
    """An idea that was tried and not kept."""

    n: int
    family: str
    line: str
    last_line: str
    """The judge's words on one line: the last one of several."""
    detail: str
    """The same in full; empty where one line has all of them."""
    reason: Reason | None


@dataclass(frozen=True)
class LedgerSummary:
    """The past as lines, oldest first."""

    counts: str
    standing: tuple[str, ...]
    wins: tuple[str, ...]
    rejected: tuple[RejectedIdea, ...]
    ablations: tuple[str, ...]
    sweeps: tuple[str, ...]
    """What became of the sweep's candidates, counted."""
    under_way: tuple[str, ...]
    """Proposed, or waiting to be, and not judged."""
    families: tuple[str, ...]
    ideas: tuple[str, ...]
    notes: tuple[str, ...]
    troubled: tuple[str, ...]


def summarise_ledger(ledger: Ledger, family: str = "") -> LedgerSummary:
    """Candidates fall apart into wins, rejected ideas, ablations and sweep candidates not kept, and under way.

    `family` is the one asked for: its open ideas count as the newest.
    """
    judged = [candidate for candidate in ledger.candidates if candidate.judged]
    kept = [candidate for candidate in judged if candidate.judged and candidate.judged.kept]
    lost = [candidate for candidate in judged if candidate.judged and not candidate.judged.kept]
    ablations = [candidate for candidate in lost if _is_ablation(candidate)]
    ideas = [candidate for candidate in lost if is_edit(candidate) and not _is_ablation(candidate)]
    sweeps = [c for c in lost if not is_edit(c) and not _is_ablation(c)]
    waiting, found = len(ledger.candidates) - len(judged), tuple(families(ledger).values())
    return LedgerSummary(
        counts=(
            f"{count(len(ledger.candidates), 'candidate')} so far: {len(kept)} kept, "
            f"{count(len(ideas), 'idea')} rejected, {count(len(ablations), 're-ablation')} rejected, "
            f"{count(len(sweeps), 'sweep candidate')} rejected, {waiting} under way."
        ),
        standing=tuple(_standing(ledger)),
        wins=tuple(map(_win, kept)),
        rejected=tuple(map(_reject, ideas)),
        ablations=tuple(map(_ablation, ablations)),
        sweeps=tuple(_sweeps(sweeps, ledger)),
        under_way=tuple(_under_way(ledger)),
        families=tuple(_families(found)),
        ideas=tuple(_open_ideas(found, slug(family))),
        notes=tuple(_notes(ledger)),
        troubled=tuple(_troubled(ledger)),
    )


def count_reasons(reasons: Iterable[Reason | None]) -> str:
    """`6 slower, 4 no_proven_gain`, the most frequent first."""
    counts = Counter(reason.value if reason else "unnamed" for reason in reasons)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda i: (-i[1], i[0])))


def _is_ablation(candidate: Candidate) -> bool:
    return candidate.proposal.undoes is not None or candidate.proposal.author == "ablation"


def _standing(ledger: Ledger) -> Iterator[str]:
    baselined, last = ledger.baselined, ledger.wins[-1].judged if ledger.wins else None
    if baselined:
        yield f"The baseline takes {describe_seconds(baselined.seconds_per_call)} a call, over the scored suite."
        yield from (
            f"The baseline has {one.value:.4g} {one.unit} of {one.metric}." for one in baselined.metrics
        )
    if last and ledger.cumulative_interval:
        now = f", {describe_seconds(last.seconds_per_call)} a call" if last.seconds_per_call else ""
        yield f"The incumbent runs at {ledger.cumulative_interval} of the baseline's speed{now}."
        yield from (f"The incumbent, suite {one.suite}, {one.metric}: {one}." for one in last.metrics)
    elif not ledger.wins:
        yield "The incumbent is the baseline: nothing has been kept yet."
    if baselined:
        yield f"Noise: one pair of processes running identical code differs by {baselined.pair_sd:.2%} (one sd)."
    yield f"Since the last win {ledger.candidates_since_win} candidates were rejected."


def _win(candidate: Candidate) -> str:
    judged, proposal = candidate.judged, candidate.proposal
    gain = f"{judged.speedup} over the incumbent of the time" if judged and judged.speedup else "not measured"
    total = f", {judged.cumulative} over the baseline" if judged and judged.cumulative else ""
    undone = f", takes back win #{proposal.undoes}" if proposal.undoes is not None else ""
    return f"{_head(candidate)}{undone}: {gain}{total}{_what(candidate)}"


def _reject(candidate: Candidate) -> RejectedIdea:
    judged = candidate.judged
    assert judged is not None
    lines = [line for line in judged.detail.splitlines() if line.strip()]
    is_long = len(lines) > 1 or len(judged.detail) > MAX_DETAIL_CHARS
    return RejectedIdea(
        n=candidate.n,
        family=slug(candidate.proposal.family),
        line=f"{_head(candidate)}: {_verdict(judged)}{_what(candidate)}",
        last_line=quoted(lines[-1], MAX_DETAIL_CHARS) if lines else "",
        detail=judged.detail if is_long else "",
        reason=judged.reason,
    )


def _ablation(candidate: Candidate) -> str:
    undoes, judged = candidate.proposal.undoes, candidate.judged
    about = f"without win #{undoes}" if undoes is not None else quoted(candidate.proposal.idea)
    return f"#{candidate.n} {about}: {_verdict(judged)}" if judged else f"#{candidate.n} {about}"


def _verdict(judged: JudgedEntry) -> str:
    reason = judged.reason.value if judged.reason else "kept"
    return f"{reason}, {judged.estimate}" if judged.estimate else reason


def _head(candidate: Candidate) -> str:
    proposal = candidate.proposal
    family = f" in {slug(proposal.family)}" if slug(proposal.family) else ""
    return f"#{candidate.n} {quoted(proposal.idea)} ({proposal.author}{family})"


def _what(candidate: Candidate) -> str:
    """The files and knobs of a proposal."""
    proposal = candidate.proposal
    files = ", ".join(quoted(edit.path, 80) for edit in proposal.edits[:8])
    more = f" and {len(proposal.edits) - 8} more" if len(proposal.edits) > 8 else ""
    knobs = ", ".join(f"{name}={text}" for name, text in to_environment(proposal.knobs).items())
    return (f"; files {files}{more}" if files else "") + (f"; knobs {quoted(knobs)}" if knobs else "")


def _sweeps(sweeps: Sequence[Candidate], ledger: Ledger) -> Iterator[str]:
    since = max((win.n for win in ledger.wins if win.proposal.edits), default=0)
    for where, those in (
        ("on the present source", [c for c in sweeps if c.n > since]),
        ("on earlier sources, where other values may have been best", [c for c in sweeps if c.n < since]),
    ):
        if those:
            told = count_reasons(candidate.judged.reason for candidate in those if candidate.judged)
            yield f"{count(len(those), 'sweep candidate')} rejected {where}: {told}."


def _under_way(ledger: Ledger) -> Iterator[str]:
    lines = [_head(candidate) for candidate in ledger.candidates if candidate.judged is None]
    waiting = list(queued_calls(ledger))
    lines += [f"{quoted(call.idea)} (waits to be tried)" for call in waiting[-MAX_QUEUED_IDEAS:]]
    yield from lines
    if len(waiting) > MAX_QUEUED_IDEAS:
        yield f"and {len(waiting) - MAX_QUEUED_IDEAS} older ideas that wait"


def _families(found: Sequence[Family]) -> Iterator[str]:
    every = sorted(found, key=lambda family: (-len(family.candidates), family.name))
    for family in every[:MAX_FAMILIES]:
        name = family.name or "no family named"
        best = family.best.judged.speedup if family.best and family.best.judged else None
        largest = f", best {best}" if best else ""
        yield f"{name}: {len(family.candidates)} tried, {len(family.kept)} kept{largest}"
    if len(every) > MAX_FAMILIES:
        yield f"and {len(every) - MAX_FAMILIES} other families"


def _open_ideas(found: Sequence[Family], asked: str) -> list[str]:
    """Those of the family asked for last; of the others first what is oldest in its family."""
    ranked = [
        (family.name == asked, age - len(family.open_ideas), f"{family.name}: {quoted(idea)}")
        for family in found
        for age, idea in enumerate(family.open_ideas)
    ]
    return [line for _, _, line in sorted(ranked, key=lambda item: item[:2])]


def _notes(ledger: Ledger) -> Iterator[str]:
    """Each once, where it was said last."""
    said = [quoted(line, 300) for call in ledger.calls for line in call.note.splitlines() if line.strip()]
    yield from reversed(dict.fromkeys(reversed(said)))


def _troubled(ledger: Ledger) -> Iterator[str]:
    """Replies that never became candidates; calls without a reply say nothing about ideas."""
    for call in ledger.calls:
        if line := _trouble(call, ledger):
            yield line


def _trouble(call: CalledEntry, ledger: Ledger) -> str:
    dropped = ledger.dropped.get(call.k)
    if dropped:
        return f"{quoted(call.idea)}: {dropped.reason}: {quoted(dropped.detail)}"
    return f"a reply that could not be used: {quoted(call.detail, 300)}" if call.outcome == "unusable" else ""
