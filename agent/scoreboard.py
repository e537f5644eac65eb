"""What a watcher of a climb knows so far: the events added up, and put into words. No terminal in here."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from agent.durations import describe_seconds, describe_span
from agent.events import (
    BaselinedEvent,
    CalledEvent,
    Event,
    FinishedEvent,
    JudgedEvent,
    Left,
    OpenedEvent,
    ProgressEvent,
    ProposedEvent,
    TroubleEvent,
    TurnedEvent,
)
from harness.records import Interval

BARS = "▁▂▃▄▅▆▇█"
LAST = 6
"""Verdicts that stay in sight."""


@dataclass
class Scoreboard:
    """The state of one climb as its events tell it."""

    opened: OpenedEvent | None = None
    baselined: BaselinedEvent | None = None
    proposed: ProposedEvent | None = None
    progress: ProgressEvent | None = None
    cumulative: Interval | None = None
    left: Left | None = None
    candidates: int = 0
    wins: int = 0
    per_hour: float = 0.0
    trouble: str = ""
    best: list[float] = field(default_factory=lambda: [1.0])
    """Speedup over the baseline after every verdict seen, and after every win of earlier sessions."""
    counts: Counter[str] = field(default_factory=Counter)
    """Verdicts of this session: `kept`, or the reason."""
    last: deque[JudgedEvent] = field(default_factory=lambda: deque(maxlen=LAST))

    def update(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case OpenedEvent():
                self.opened, self.left, self.cumulative = event, event.left, event.cumulative
                self.candidates, self.wins = event.candidates, len(event.best)
                self.best += event.best
            case BaselinedEvent():
                self.baselined = event
            case ProposedEvent():
                self.proposed, self.progress, self.trouble = event, None, ""
            case ProgressEvent():
                self.progress = event
            case JudgedEvent():
                self._judge(event)
            case TroubleEvent():
                self.trouble = event.message
            case FinishedEvent():
                self.proposed = self.progress = None

    def _judge(self, event: JudgedEvent) -> None:
        self.candidates, self.wins, self.per_hour = event.candidates, event.wins, event.per_hour
        self.left = event.left
        self.counts["kept" if event.kept else str(event.reason)] += 1
        if event.kept and event.cumulative:
            self.cumulative = event.cumulative
        self.best.append(self.cumulative.estimate if self.cumulative else 1.0)
        self.last.append(event)
        self.progress = None


def sparkline(values: list[float], width: int) -> str:
    """Best-so-far as `width` bars at the most; equal values are one low bar each."""
    if not values:
        return ""
    picked = (
        values
        if len(values) <= width
        else [values[i * (len(values) - 1) // (width - 1)] for i in range(width)]
    )
    low, high = min(picked), max(picked)
    if high == low:
        return BARS[0] * len(picked)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in picked)


def describe_opening(event: OpenedEvent) -> str:
    """What is climbed, where, by whom it is judged, and where the ideas come from."""
    judge = f"judged on {event.provenance.device}, sandbox: {event.provenance.sandbox}"
    judge += f"; {event.sources}" if event.sources else ""
    if not event.resumed:
        return f"{event.case}: run {event.tag}, branch {event.branch}; {judge}"
    best = f" at {event.cumulative}" if event.cumulative else ""
    return f"{event.case}: run {event.tag} taken up after {event.candidates} candidates{best}; {judge}"


def describe_baseline(event: BaselinedEvent) -> str:
    """The baseline's time and what two identical processes differ by."""
    time = describe_seconds(event.seconds_per_call)
    return f"baseline: {time} a call, gate passed {event.gate.runs} checks; noise {event.noise}"


def describe_verdict(event: JudgedEvent) -> str:
    """One verdict in one line."""
    if event.kept:
        over = f", {event.cumulative.estimate:.3f}x over the baseline" if event.cumulative else ""
        note = f"; {event.detail}" if event.detail else ""
        return f"kept {event.speedup or ''}{over}{note}".replace("  ", " ")
    lead = f" ({event.screened:.3f}x on screening)" if event.screened is not None else ""
    detail = f": {event.detail}" if event.detail else ""
    return f"{event.reason}{lead}{detail}"


def describe_turn(event: TurnedEvent) -> str:
    """`edit block on tiling: 12 sweep candidates moved 0.3 %, less than the noise`"""
    about = f" on {event.family}" if event.family else ""
    return f"{event.phase} block{about}: {event.reason}"


def describe_call(event: CalledEvent) -> str:
    """`call 7: proposal in 12 s, 8012 tokens, $0.0210: keep C in registers`"""
    cost = f", {show_money(event.cost)}" if event.cost is not None else ""
    outcome = f"{event.outcome} ({event.fault})" if event.fault else event.outcome
    said = event.idea if event.outcome == "proposal" else event.detail
    told = f": {said.splitlines()[0]}" if said else ""
    return f"call {event.k}: {outcome} in {describe_span(event.seconds)}, {event.tokens} tokens{cost}{told}"


def describe_finish(event: FinishedEvent) -> list[str]:
    """How it ended, what was reached, where it lies and what to do next."""
    reached = (
        f"{event.cumulative} over the baseline" if event.cumulative else "nothing faster than the baseline"
    )
    mattered = ", ".join(f"{name} {share:.0%}" for name, share in list(event.importances.items())[:5])
    lines = [
        f"ended: {event.reason}",
        f"reached: {reached}, {count(event.wins, 'win')} of {count(event.candidates, 'candidate')}",
        *([f"knobs that mattered: {mattered}"] if mattered else []),
        *([f"model: {event.tokens} tokens{_dollars(event.cost)}"] if event.tokens else []),
        f"branch: {event.branch}",
        f"record: {event.folder}",
    ]
    if event.interrupted:
        lines.append("everything recorded is safe; the same command goes on from here")
    return lines


def _dollars(cost: float) -> str:
    """Nothing where no price is known."""
    return f", {show_money(cost)}" if cost else ""


def count(number: int, noun: str) -> str:
    """`1 win`, `2 wins`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def show_money(dollars: float) -> str:
    """Cents, and what is below them while the sum is small."""
    return f"${dollars:.2f}" if dollars >= 1 else f"${dollars:.4f}"


def describe_counts(counts: Counter[str]) -> str:
    """`kept 6 · slower 40 · raised 3`"""
    rejected = [(reason, count) for reason, count in counts.most_common() if reason != "kept"]
    return " · ".join(f"{reason} {count}" for reason, count in [("kept", counts["kept"]), *rejected])


def describe_progress(event: ProgressEvent | None) -> str:
    """`decide 3/20 1.023x`"""
    if event is None:
        return ""
    of = f" {event.done}/{event.of}" if event.of else ""
    speedup = f"  {event.speedup:.3f}x" if event.speedup is not None else ""
    return f"{event.stage}{of}{speedup}"


def describe_left(left: Left | None) -> str:
    """`12 min, 9920 candidates, patience 180`"""
    if left is None:
        return "not known here"
    parts = [describe_span(left.seconds), f"{left.candidates} candidates", f"patience {left.patience}"]
    if left.tokens is not None:
        parts.append(f"{left.tokens} tokens")
    if left.cost is not None:
        parts.append(show_money(left.cost))
    return ", ".join(parts)
