"""Each kind of post in words. Whatever a model, a person or a machine wrote goes through `TextSanitizer` first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from hillclimb.agent.notify.post import Post
from hillclimb.agent.notify.sanitize import code, plain, redact
from hillclimb.agent.screen.durations import describe_seconds, describe_span
from hillclimb.agent.screen.events import (
    BaselinedEvent,
    FinishedEvent,
    JudgedEvent,
    OpenedEvent,
    ProposedEvent,
    TroubleEvent,
    TurnedEvent,
)
from hillclimb.agent.screen.scoreboard import describe_left, describe_reached, show_money
from hillclimb.harness.wording import count

_TOP = 5
_MAX_LINE_CHARACTERS = 140


@dataclass(frozen=True)
class TextSanitizer:
    """Foreign text made fit to be shown, secrets blotted out first."""

    secrets: tuple[SecretStr, ...] = ()

    def plain(self, text: str, limit: int = 300) -> str:
        """As running text."""
        return plain(redact(text, self.secrets), limit)

    def code(self, text: str, limit: int = 300) -> str:
        """As something to copy."""
        return code(redact(text, self.secrets), limit)


@dataclass
class EventHistory:
    """What the events told so far, as far as a later post needs it."""

    opened: OpenedEvent | None = None
    baselined: BaselinedEvent | None = None
    judged: JudgedEvent | None = None
    """The last verdict."""
    wins: list[tuple[JudgedEvent, str]] = field(default_factory=list)
    """Of this session, each with its line."""
    calls: int = 0
    faults: int = 0
    turns: int = 0
    troubles: int = 0


def start_post(opened: OpenedEvent, baselined: BaselinedEvent | None, words: TextSanitizer) -> Post:
    """A run begins, or is taken up."""
    case, tag = words.plain(opened.case), words.plain(opened.tag)
    fields = [
        ("Branch", words.code(opened.branch)),
        (
            "Judged on",
            f"{words.plain(opened.provenance.device)}, sandbox: {words.plain(opened.provenance.sandbox)}",
        ),
        ("Budget left", describe_left(opened.left) if opened.left else ""),
    ]
    if baselined:
        fields.insert(1, ("Baseline", f"{describe_seconds(baselined.seconds_per_call)} a call"))
        fields.insert(2, ("Noise", f"{baselined.noise}, {100 * baselined.pair_sd:.2g} % a pair"))
    if opened.resumed:
        best = f", {opened.cumulative} over the baseline" if opened.cumulative else ""
        fields.insert(
            0, ("So far", f"{count(opened.candidates, 'candidate')}, {count(len(opened.best), 'win')}{best}")
        )
    did = "taken up" if opened.resumed else "started"
    title = f"{case}: run {tag} {did}"
    return Post(kind="start", time=opened.time, title=title, line=f"run {did}", fields=tuple(fields))


def win_post(
    event: JudgedEvent,
    proposed: ProposedEvent | None,
    seen: EventHistory,
    words: TextSanitizer,
    picture: Path | None,
) -> Post:
    """A candidate was kept."""
    over = f"{event.cumulative.estimate:.3f}x over the baseline" if event.cumulative else "kept"
    idea = words.plain(proposed.idea, 1000) if proposed else ""
    short = words.plain(proposed.idea, _MAX_LINE_CHARACTERS) if proposed else f"candidate {event.n}"
    gain = f"{event.speedup.estimate:.3f}x" if event.speedup else "kept"
    fields = [
        ("Speedup", str(event.speedup or "")),
        ("Over the baseline", str(event.cumulative or "")),
        ("Measured", "\n".join(f"{one.suite} {one.metric}: {one}" for one in event.metrics[:_TOP])),
        ("By", _author(proposed, words)),
        ("Commit", words.code((event.commit or "")[:12])),
        ("Candidate", f"{event.n} of {event.candidates} so far"),
        ("Budget left", describe_left(event.left) if event.left else ""),
    ]
    case = f"{_name(seen, words)}: " if seen.opened else ""
    return Post(
        kind="win",
        time=event.time,
        title=f"{case}win {event.wins}, {over}",
        line=f"#{event.n} {gain}, {over}: {short}" if event.cumulative else f"#{event.n} {gain}: {short}",
        text=idea,
        fields=tuple(fields),
        n=event.n,
        picture=picture,
    )


def turn_post(turns: Sequence[TurnedEvent], words: TextSanitizer) -> Post:
    """The rhythm moved on because progress had stopped; the last of several turns says where it is now."""
    last = turns[-1]
    about = f" on {words.plain(last.family)}" if last.family else ""
    fields = [("Signals", words.plain(", ".join(last.signals)))]
    if len(turns) > 1:
        fields.append(("Meanwhile", f"moved on {count(len(turns) - 1, 'time')} before this"))
    return Post(
        kind="turn",
        time=last.time,
        title=f"Plateau: on to {last.phase}{about}",
        line=f"on to {last.phase}{about}: {words.plain(last.reason, _MAX_LINE_CHARACTERS)}",
        text=words.plain(last.reason, 1000),
        fields=tuple(fields),
    )


def trouble_post(troubles: Sequence[TroubleEvent], seen: EventHistory, words: TextSanitizer) -> Post:
    """The machine misbehaves; several troubles are told together, different ones once each."""
    different = list(dict.fromkeys(trouble.message for trouble in troubles))
    shown = [f"- {words.plain(message, 600)}" for message in different[-_TOP:]]
    if len(different) > _TOP:
        shown.insert(0, f"- {len(different) - _TOP} others")
    case = f"{_name(seen, words)}: " if seen.opened else ""
    title = f"{case}{count(len(troubles), 'trouble')}" if len(troubles) > 1 else f"{case}trouble"
    return Post(
        kind="trouble",
        time=troubles[-1].time,
        title=title,
        line=f"trouble: {words.plain(different[-1], _MAX_LINE_CHARACTERS)}",
        text="\n".join(shown),
    )


def end_post(event: FinishedEvent, seen: EventHistory, words: TextSanitizer, picture: Path | None) -> Post:
    """The morning digest."""
    name = _name(seen, words) or "the run"
    best = f", {event.cumulative.estimate:.3f}x over the baseline" if event.cumulative else ""
    how = "interrupted" if event.interrupted else "ended"
    title = f"{name} {how}: {count(event.wins, 'win')}{best}"
    return Post(
        kind="end",
        time=event.time,
        title=title,
        line=title,
        text=words.plain(event.reason, 1000),
        fields=tuple(_end_fields(event, seen, words)),
        picture=picture,
    )


def _end_fields(event: FinishedEvent, seen: EventHistory, words: TextSanitizer) -> list[tuple[str, str]]:
    mattered = [f"{words.plain(name)} {share:.0%}" for name, share in list(event.importances.items())[:_TOP]]
    model = f"{count(event.tokens, 'token')}, {show_money(event.cost)}" if event.tokens or seen.calls else ""
    calls = f"; {count(seen.calls, 'call')} this session, {seen.faults} failed" if seen.calls else ""
    trouble = f"{count(seen.troubles, 'trouble')} this session" if seen.troubles else ""
    return [
        ("Reached", describe_reached(event)),
        ("Candidates", f"{event.candidates}, {count(event.wins, 'win')}"),
        ("Time", _describe_time(event, seen)),
        ("Model", f"{model}{calls}"),
        ("Largest wins of this session", _largest(seen)),
        ("Knobs that mattered", ", ".join(mattered) or words.plain(event.importances_missing)),
        ("Plateaus", f"moved on {count(seen.turns, 'time')} this session" if seen.turns else ""),
        ("Trouble", trouble),
        ("Review", _review(event, seen, words)),
    ]


def _review(event: FinishedEvent, seen: EventHistory, words: TextSanitizer) -> str:
    lines = [words.code(f"git log {event.branch}")]
    if seen.opened:
        lines.append(words.code(f"hillclimb report {seen.opened.case} --tag {seen.opened.tag}"))
        lines.append(words.code(f"hillclimb review {event.branch}"))
    if event.interrupted:
        lines.append("The same climb command goes on from here.")
    return "\n".join(lines)


def _largest(seen: EventHistory) -> str:
    def gain(win: tuple[JudgedEvent, str]) -> float:
        return win[0].speedup.estimate if win[0].speedup else 0.0

    lines = [line for _, line in sorted(seen.wins, key=gain, reverse=True)[:_TOP]]
    return "\n".join(lines)


def _describe_time(event: FinishedEvent, seen: EventHistory) -> str:
    """Over all sessions where a verdict said so, else of this one."""
    if seen.judged:
        return describe_span(seen.judged.elapsed + max(0.0, event.time - seen.judged.time))
    return describe_span(max(0.0, event.time - seen.opened.time)) if seen.opened else ""


def _name(seen: EventHistory, words: TextSanitizer) -> str:
    return f"{words.plain(seen.opened.case)}, run {words.plain(seen.opened.tag)}" if seen.opened else ""


def _author(proposed: ProposedEvent | None, words: TextSanitizer) -> str:
    if proposed is None:
        return ""
    return f"{proposed.author}, {words.plain(proposed.family)}" if proposed.family else proposed.author
