"""What the run used: phases, the judge's time by verdict, and the model's calls, tokens and money."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from harness.report.page_ledger import Chronicle, Line, Seen, many, number, section, text
from harness.report.page_text import group_of


@dataclass(frozen=True)
class PhaseRow:
    """One phase of the rhythm."""

    phase: str
    family: str
    reason: str
    signals: tuple[str, ...]
    time: float | None
    first: int
    last: int
    """Candidates first to last; last < first while it has none."""
    wins: int
    best: float
    """Best so far over the baseline at its end."""


@dataclass
class Tally:
    """Calls of one kind together."""

    name: str
    calls: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    cost: float = 0.0
    unpriced: int = 0
    """Calls whose price is not known."""
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    def add(self, call: Line) -> None:
        """One more call."""
        usage, cost = section(call.get("usage")), number(call.get("cost"))
        self.calls += 1
        for name in ("prompt", "cached", "completion", "reasoning"):
            setattr(self, name, getattr(self, name) + int(number(usage.get(name)) or 0))
        self.cost += cost or 0.0
        self.unpriced += cost is None
        self.seconds += number(call.get("seconds")) or 0.0

    @property
    def paid(self) -> float | None:
        """None where no price at all is known."""
        return None if self.calls and self.unpriced == self.calls else self.cost


@dataclass
class Costs:
    """Where time and money went."""

    total: Tally = field(default_factory=lambda: Tally("all"))
    models: dict[str, Tally] = field(default_factory=dict)
    outcomes: dict[str, Tally] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    judge: dict[str, float] = field(default_factory=dict)
    """Seconds of the judge by group of verdict: kept, slow, stopped."""

    @property
    def judged_seconds(self) -> float:
        return sum(self.judge.values())


def list_phases(chronicle: Chronicle) -> list[PhaseRow]:
    """The phases in order, each with what it led to."""
    turns = sorted(chronicle.turns, key=lambda turn: number(turn.get("n")) or 0.0)
    last = chronicle.candidates[-1].n if chronicle.candidates else 0
    starts = [int(number(turn.get("n")) or 0) for turn in turns]
    ends = [start - 1 for start in starts[1:]] + [last]
    wins = chronicle.wins
    return [_phase(wins, *each) for each in zip(turns, starts, ends, strict=False)]


def _phase(all_wins: list[Seen], turn: Line, first: int, last: int) -> PhaseRow:
    wins = [seen for seen in all_wins if seen.n <= last]
    return PhaseRow(
        text(turn.get("phase"), 40),
        text(turn.get("family"), 80),
        text(turn.get("reason"), 600),
        tuple(text(name, 80) for name in many(turn.get("signals"))),
        number(turn.get("time")),
        first,
        last,
        sum(seen.n >= first for seen in wins),
        next((seen.over_baseline for seen in reversed(wins) if seen.over_baseline), 1.0),
    )


def add_up(chronicle: Chronicle) -> Costs:
    """One pass over calls and candidates."""
    costs = Costs()
    for call in chronicle.calls:
        model, outcome = text(call.get("model"), 80) or "unnamed", text(call.get("outcome"), 40)
        tallies = (
            costs.models.setdefault(model, Tally(model)),
            costs.outcomes.setdefault(outcome, Tally(outcome)),
        )
        for tally in (costs.total, *tallies):
            tally.add(call)
        if call.get("fault"):
            costs.faults[text(call.get("fault"), 80)] += 1
    for seen in chronicle.candidates:
        if seen.judged:
            group = group_of(seen.verdict)
            costs.judge[group] = costs.judge.get(group, 0.0) + (number(seen.judged.get("seconds")) or 0.0)
    return costs
