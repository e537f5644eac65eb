"""What a watcher of a climb knows so far: the events added up, and put into words. No terminal in here."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from hillclimb.agent.screen.durations import describe_seconds, describe_span
from hillclimb.agent.screen.events import (
    BaselinedEvent,
    CalledEvent,
    Event,
    FinishedEvent,
    JudgedEvent,
    OpenedEvent,
    ProgressEvent,
    ProposedEvent,
    RemainingBudget,
    TroubleEvent,
    TurnedEvent,
)
from hillclimb.harness.records import Interval
from hillclimb.harness.wording import count

BARS = "▁▂▃▄▅▆▇█"
TROUBLE_SECONDS = 30.0
"""For which a trouble stays in sight at the least, while measuring goes on."""
MAX_VERDICTS_SHOWN = 6
"""Verdicts that stay in sight."""


@dataclass
class Scoreboard:
    """The state of one climb as its events tell it."""

    opened: OpenedEvent | None = None
    baselined: BaselinedEvent | None = None
    proposed: ProposedEvent | None = None
    progress: ProgressEvent | None = None
    cumulative: Interval | None = None
    left: RemainingBudget | None = None
    candidates: int = 0
    wins: int = 0
    per_hour: float = 0.0
    trouble: str = ""
    """The last one, until work has gone on."""
    troubled_at: float = 0.0
    best: list[float] = field(default_factory=lambda: [1.0])
    """Speedup over the baseline after every verdict seen, and after every win of earlier sessions."""
    counts: Counter[str] = field(default_factory=Counter)
    """Verdicts of this session: `kept`, or the reason."""
    last: deque[JudgedEvent] = field(default_factory=lambda: deque(maxlen=MAX_VERDICTS_SHOWN))

    def update(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case OpenedEvent():
                self.opened, self.left, self.cumulative = event, event.left, event.cumulative
                self.candidates, self.wins = event.candidates, len(event.best)
                self.best += event.best
            case BaselinedEvent():
                self.baselined, self.trouble = event, ""
            case ProposedEvent():
                self.proposed, self.progress, self.trouble = event, None, ""
            case ProgressEvent():
                self.progress = event
                if event.time - self.troubled_at > TROUBLE_SECONDS:
                    self.trouble = ""
            case CalledEvent(outcome="proposal"):
                self.trouble = ""
            case JudgedEvent():
                self._judge(event)
            case TroubleEvent():
                self.trouble, self.troubled_at = event.message, event.time
            case FinishedEvent():
                self.proposed, self.progress, self.trouble = None, None, ""

    def _judge(self, event: JudgedEvent) -> None:
        self.candidates, self.wins, self.per_hour = event.candidates, event.wins, event.per_hour
        self.left = event.left
        self.counts["kept" if event.kept else str(event.reason)] += 1
        if event.kept and event.cumulative:
            self.cumulative = event.cumulative
        self.best.append(self.cumulative.estimate if self.cumulative else 1.0)
        self.last.append(event)
        self.progress, self.trouble = None, ""


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


def describe_session(event: OpenedEvent) -> list[str]:
    """How a session begins, and by which budgets."""
    return [line for line in (describe_opening(event), describe_budgets(event)) if line]


def describe_opening(event: OpenedEvent) -> str:
    """What is climbed, where, by whom it is judged, and where the ideas come from."""
    judge = f"judged on {event.provenance.device}, sandbox: {event.provenance.sandbox}"
    judge += f"; {event.sources}" if event.sources else ""
    if not event.resumed:
        return f"{event.case}: run {event.tag}, branch {event.branch}; {judge}"
    best = f" at {event.cumulative}" if event.cumulative else ""
    return (
        f"{event.case}: run {event.tag} taken up after {count(event.candidates, 'candidate')}{best}; {judge}"
    )


def describe_budgets(event: OpenedEvent) -> str:
    """`budgets: 8 h 00 min, 50 candidates, patience 200, until 2x; left: ...`; empty where none applies."""
    if event.budgets is None:
        return ""
    budgets = event.budgets
    parts = [
        describe_span(budgets.seconds),
        count(budgets.candidates, "candidate"),
        f"patience {budgets.patience}",
        *([count(budgets.tokens, "token")] if budgets.tokens is not None else []),
        *([show_money(budgets.cost)] if budgets.cost is not None else []),
        *([f"until {budgets.until:g}x"] if budgets.until is not None else []),
    ]
    left = f"; left: {describe_left(event.left)}" if event.resumed and event.left else ""
    return f"budgets: {', '.join(parts)}{left}"


def describe_baseline(event: BaselinedEvent) -> str:
    """The baseline's time and what two identical processes differ by."""
    time = describe_seconds(event.seconds_per_call)
    return f"baseline: {time} a call, gate passed {count(event.gate.runs, 'check')}; noise {event.noise}"


def describe_verdict(event: JudgedEvent) -> str:
    """One verdict in one line."""
    if event.kept:
        over = f", {event.cumulative.estimate:.3f}x over the baseline" if event.cumulative else ""
        note = f"; {event.detail}" if event.detail else ""
        return f"kept {event.speedup or ''}{over}{note}".replace("  ", " ")
    seen = f" ({event.estimate})" if event.estimate else ""
    detail = f": {event.detail}" if event.detail else ""
    return f"{event.reason}{seen}{detail}"


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
    return f"call {event.k}: {outcome} in {describe_span(event.seconds)}, {count(event.tokens, 'token')}{cost}{told}"


def describe_finish(event: FinishedEvent) -> list[str]:
    """How it ended, what was reached, where it lies and what to do next."""
    if not event.begun:
        again = (
            "the same command begins"
            if event.interrupted
            else "give it more time, and the same command begins"
        )
        return [f"ended: {event.reason}", f"nothing was begun: the baseline was not measured yet; {again}"]
    reached = describe_reached(event)
    told = ", ".join(f"{name} {share:.0%}" for name, share in list(event.importances.items())[:5])
    mattered = told or event.importances_missing
    lines = [
        f"ended: {event.reason}",
        f"reached: {reached}, {count(event.wins, 'win')} of {count(event.candidates, 'candidate')}",
        *([f"knobs that mattered: {mattered}"] if mattered else []),
        *([_model_line(event)] if event.tokens else []),
        f"branch: {event.branch}",
        f"record: {event.folder}",
    ]
    if event.interrupted:
        lines.append("everything recorded is safe; the same command goes on from here")
    return lines


def _model_line(event: FinishedEvent) -> str:
    """`model: 8012 tokens, 3000 of them assumed, $0.0210`"""
    assumed = f", {event.assumed_tokens} of them assumed" if event.assumed_tokens else ""
    return f"model: {count(event.tokens, 'token')}{assumed}{_dollars(event.cost)}"


def describe_reached(event: FinishedEvent) -> str:
    """The one figure over the baseline, and in words where another one stands."""
    if event.cumulative is None:
        return "nothing faster than the baseline"
    if event.when_kept is None:
        return f"{event.cumulative} over the baseline"
    then = f"{event.when_kept.estimate:.3f}x when the last win was kept, as its commit and the curve have it"
    return f"{event.cumulative} over the baseline, measured again at the end ({then})"


def _dollars(cost: float) -> str:
    """Nothing where no price is known."""
    return f", {show_money(cost)}" if cost else ""


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


def describe_left(left: RemainingBudget | None) -> str:
    """`12 min, 9920 candidates, patience 180`"""
    if left is None:
        return "not known here"
    parts = [describe_span(left.seconds), count(left.candidates, "candidate"), f"patience {left.patience}"]
    if left.tokens is not None:
        parts.append(count(left.tokens, "token"))
    if left.cost is not None:
        parts.append(show_money(left.cost))
    return ", ".join(parts)
