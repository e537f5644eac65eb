"""What `hillclimb show` found, as records, and as lines for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Literal

from hillclimb.agent.llm.briefing.headroom import Headroom, headroom
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.entries import (
    BaselinedEntry,
    CalledEntry,
    ConfirmingEntry,
    JudgedEntry,
    OpenedEntry,
    WebhookState,
)
from hillclimb.agent.review.blocks import describe_blocks, describe_dropped
from hillclimb.agent.screen.durations import describe_seconds, describe_span
from hillclimb.agent.screen.escaping import StyledLine, escape_unprintable
from hillclimb.harness.knobs.knobs import to_environment
from hillclimb.harness.records import GateReport, Pair, Profile, Record
from hillclimb.harness.wording import count

_LABEL = 12


class StageSummary(Record):
    """The raw pairs of one stage and suite, added up; log ratios are log(other's time / candidate's)."""

    stage: str
    suite: str
    pairs: int
    blocks: int
    dropped: int
    """Disturbed blocks that were measured again."""
    dropped_for: tuple[str, ...]
    """What disturbed them, of each block everything that did."""
    median: float
    """Log ratio: median over the pairs of each pair's median block."""
    between_pairs: float | None
    """Standard deviation of the pairs' medians; None for a single pair."""
    within_pairs: float | None
    """Standard deviation of the blocks around their pair's median; None where a pair is one block."""
    clock: float | None = None
    """As `median`, by the judge's own clock, where `median` is by device events; None where they are one clock."""
    machine: str = ""
    """What the GPU was doing meanwhile, in words: clocks, temperature, power, what held it down."""

    @property
    def speedup(self) -> float:
        return math.exp(self.median)


class CandidateView(Record):
    """One candidate, as `hillclimb show --json` prints it."""

    run: str
    n: int
    state: Literal["pending", "kept", "rejected"]
    proposal: Proposal
    confirming: ConfirmingEntry | None
    judged: JudgedEntry | None
    settled: bool
    webhook: WebhookState
    call: CalledEntry | None
    """The model call it came from."""
    profile: Profile | None = None
    """A look inside it, where it became the incumbent and was profiled."""
    diff: str
    """Against the incumbent it met, as git writes it."""
    diff_missing: str
    """Why there is none, or where it comes from if not from git; empty else."""
    stages: tuple[StageSummary, ...]
    samples_missing: str
    """Why there are none; empty where there are."""
    pairs: tuple[Pair, ...] = ()
    """Every block, where it was asked for."""


class BaselineView(Record):
    """The baseline and its noise, as `hillclimb show baseline --json` prints it."""

    run: str
    opened: OpenedEntry
    baselined: BaselinedEntry | None
    profile: Profile | None
    stages: tuple[StageSummary, ...]
    samples_missing: str
    pairs: tuple[Pair, ...] = ()


def describe_candidate(found: CandidateView) -> Iterator[StyledLine]:
    """Proposal, verdict, figures, samples and diff."""
    judged = found.judged
    why = f" ({judged.reason})" if judged and judged.reason else ""
    yield StyledLine(f"{found.run} #{found.n}: {found.state}{why}", _style(found.state))
    yield from _rows(_about_proposal(found.proposal))
    yield from _rows(_about_call(found.call))
    yield from _rows(_about_verdict(judged, found.confirming))
    yield from _rows(_about_profile(found.profile))
    yield from _rows([("webhook", found.webhook.webhook_status)])
    yield from _about_samples(found.stages, found.samples_missing)
    yield from describe_blocks(found.pairs)
    yield from _diff(found.diff, found.diff_missing)


def describe_baseline(found: BaselineView) -> Iterator[StyledLine]:
    """The baseline's time, gate and noise, and who judges."""
    opened, measured = found.opened, found.baselined
    yield StyledLine(f"{found.run} baseline", "bold")
    snapshot = " (a snapshot of files that were not committed)" if opened.snapshot else ""
    yield from _rows([("commit", f"{opened.base}{snapshot}")])
    if measured is None:
        yield StyledLine("not measured yet")
    else:
        yield from _rows(
            [
                ("time", f"{describe_seconds(measured.seconds_per_call)} a call"),
                *(("measured", f"{one.suite} {one.metric}: {one}") for one in measured.metrics),
                ("noise", f"{measured.noise} over itself; one pair scatters by {measured.pair_sd:.2%}"),
                ("gate", _gate(measured.gate)),
            ]
        )
    yield from _rows(_about_profile(found.profile))
    yield from _rows(_about_judge(opened))
    yield from _about_samples(found.stages, found.samples_missing)
    yield from describe_blocks(found.pairs)


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[StyledLine]:
    """Labelled lines; what has more than one goes on under its first."""
    for label, value in rows:
        for number, text in enumerate(value.split("\n") if value else []):
            yield StyledLine(f"{'' if number else label:<{_LABEL}}{escape_unprintable(text)}")


def _about_proposal(proposal: Proposal) -> Iterator[tuple[str, str]]:
    yield "idea", proposal.idea
    yield "author", proposal.author
    yield "family", proposal.family
    yield "knobs", ", ".join(f"{name}={text}" for name, text in to_environment(proposal.knobs).items())
    yield "files", ", ".join(edit.path for edit in proposal.edits)
    yield "undoes", f"win {proposal.undoes}" if proposal.undoes else ""


def _about_call(call: CalledEntry | None) -> Iterator[tuple[str, str]]:
    if call is None:
        return
    cost = f", ${call.cost:.4f}" if call.cost is not None else ""
    about = "estimated tokens" if call.usage.estimated else "tokens"
    spent = f"{describe_span(call.seconds)}, {call.usage.total} {about}{cost}"
    mended = f", mends call {call.repairs}" if call.repairs else ""
    yield "call", f"{call.k} to {call.model}: {spent}{mended} (calls/{call.k}.json)"
    yield "note", call.note


def _about_verdict(
    judged: JudgedEntry | None, confirming: ConfirmingEntry | None
) -> Iterator[tuple[str, str]]:
    if judged is None:
        return
    yield "detail", judged.detail
    yield "screened", _screening(judged)
    yield "decided", _decision(judged)
    yield "refuted", f"{judged.refuted} over {judged.refuted.pairs} report pairs" if judged.refuted else ""
    yield "speedup", f"{judged.speedup} over the incumbent" if judged.speedup else ""
    yield "cumulative", f"{judged.cumulative} over the baseline" if judged.cumulative else ""
    per_call = judged.seconds_per_call
    yield "time", f"{describe_seconds(per_call)} a call" if per_call is not None else ""
    yield "evidence", _evidence(judged, confirming)
    yield "gate", _gate(judged.gate) if judged.gate else "not reached"
    for one in judged.metrics:
        yield "measured", f"{one.suite} {one.metric}: {one}"
    for rail in judged.guardrails:
        kept = "kept" if rail.passed else "crossed"
        may = f"may {'get worse' if rail.metric else 'slow down'} by {rail.max_slowdown:.0%}"
        yield "guardrail", f"{f'{rail.suite} {rail.metric}'.strip()}: {rail.speedup}, {may}: {kept}"
    yield "judged in", describe_span(judged.seconds)
    yield "incumbent", judged.parent
    yield "commit", f"{judged.commit} ({judged.ref})" if judged.commit else "none"


def _screening(judged: JudgedEntry) -> str:
    if judged.screened is None:
        return ""
    is_last = judged.estimate is not None and judged.estimate.stage == "screen"
    return f"{judged.screened:.3f}x on one pair, {'a lead' if is_last else 'and measured afresh since'}"


def _decision(judged: JudgedEntry) -> str:
    if judged.decided is None:
        return ""
    interval = judged.decided.interval
    return (
        f"{interval} over {interval.pairs} fresh pairs"
        if interval
        else f"{judged.decided.speedup:.3f}x on one fresh pair"
    )


def _evidence(judged: JudgedEntry, confirming: ConfirmingEntry | None) -> str:
    if confirming is None:
        return ""
    e_value = f"{judged.e_value:.4g}" if judged.e_value is not None else "none"
    needed = f"{1 / confirming.alpha:.4g}"
    return f"e-value {e_value}, needs {needed} (alpha {confirming.alpha:.4g}, confirmation {confirming.k} of the run)"


def _gate(gate: GateReport) -> str:
    if not gate.passed:
        return f"failed: {gate.reason}: {gate.detail}"
    where = f" at {gate.worst_at}" if gate.worst_at else ""
    ran = "".join(f"; {row.name} ran {row.calls:g} times, {row.share:.1%}" for row in gate.engaged)
    return f"passed {count(gate.runs, 'check')}, largest error {gate.worst:.3f} of the budget{where}{ran}"


def _about_profile(profile: Profile | None) -> Iterator[tuple[str, str]]:
    if profile is None:
        return
    for room in headroom(profile):
        yield "headroom", _room(room)
    for bucket in profile.buckets[:5]:
        yield "profile", f"{bucket.share:6.1%}  {bucket.name}"


def _room(room: Headroom) -> str:
    """One problem against the device's ceilings."""
    if not room.floor_seconds or not room.factor:
        return f"{room.problem}: {describe_seconds(room.seconds)} a call; the device's ceilings are not known"
    floor = f"the ceilings allow {describe_seconds(room.floor_seconds)} ({room.bound})"
    return f"{room.problem}: {describe_seconds(room.seconds)} a call, {floor}: {room.factor:.3g}x left"


def _about_judge(opened: OpenedEntry) -> Iterator[tuple[str, str]]:
    judge = opened.provenance
    yield "device", judge.device
    yield "sandbox", judge.sandbox
    yield "software", ", ".join(f"{name} {version}" for name, version in sorted(judge.software.items()))


def _about_samples(stages: Iterable[StageSummary], missing: str) -> Iterator[StyledLine]:
    if missing:
        yield from _rows([("samples", missing)])
        return
    stages = tuple(stages)
    clocks = any(stage.clock is not None for stage in stages)
    heads = f"{'stage':<12}{'suite':<12}{'pairs':>6}{'blocks':>8}{'dropped':>9}{'speedup':>11}"
    clock = f"{'clock':>11}" if clocks else ""
    yield StyledLine(f"{heads}{clock}{'pair sd':>10}{'block sd':>10}", "dim")
    for stage in stages:
        counts = f"{stage.pairs:>6}{stage.blocks:>8}{stage.dropped:>9}{stage.speedup:>10.4f}x"
        clock = f"{_clock(stage):>11}" if clocks else ""
        spread = f"{_share(stage.between_pairs):>10}{_share(stage.within_pairs):>10}"
        yield StyledLine(f"{stage.stage:<12}{escape_unprintable(stage.suite):<12}{counts}{clock}{spread}")
        if stage.machine:
            yield StyledLine(f"{'':<12}{stage.machine}", "dim")
        if stage.dropped_for:
            yield StyledLine(f"{'':<12}{describe_dropped(stage.dropped, stage.dropped_for)}", "dim")
    if clocks:
        yield StyledLine(
            "speedup by device events, which decide while the judge's own clock bears them out", "dim"
        )


def _clock(stage: StageSummary) -> str:
    return "" if stage.clock is None else f"{math.exp(stage.clock):.4f}x"


def _diff(diff: str, missing: str) -> Iterator[StyledLine]:
    yield from _rows([("diff", missing)])
    for text in diff.split("\n")[: -1 if diff.endswith("\n") else None]:
        yield StyledLine(escape_unprintable(text), _diff_style(text))


def _diff_style(text: str) -> str:
    if text.startswith(("diff ", "index ", "--- ", "+++ ", "new file", "deleted file")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(text[:1], "")


def _style(state: str) -> str:
    return {"kept": "bold green", "rejected": "bold red"}.get(state, "bold")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"
