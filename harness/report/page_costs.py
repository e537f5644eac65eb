"""What the run used: phases, the judge's time by verdict, and the model's calls, tokens and money."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hillclimb.harness.report.page_ledger import (
    CandidateHistory,
    LedgerObject,
    RunHistory,
    as_list,
    as_object,
    finite_number,
    safe_text,
)
from hillclimb.harness.report.page_text import verdict_group


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
class CallTotals:
    """Calls of one kind together."""

    name: str
    calls: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    assumed: int = 0
    """Of all tokens, those that no server told."""
    cost: float = 0.0
    unpriced: int = 0
    """Calls whose price is not known."""
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    def add(self, call: LedgerObject) -> None:
        """One more call."""
        usage, cost = as_object(call.get("usage")), finite_number(call.get("cost"))
        self.calls += 1
        for name in ("prompt", "cached", "completion", "reasoning", "assumed"):
            setattr(self, name, getattr(self, name) + int(finite_number(usage.get(name)) or 0))
        self.cost += cost or 0.0
        self.unpriced += cost is None
        self.seconds += finite_number(call.get("seconds")) or 0.0

    @property
    def paid(self) -> float | None:
        """None where no price at all is known."""
        return None if self.calls and self.unpriced == self.calls else self.cost


@dataclass
class Costs:
    """Where time and money went."""

    total: CallTotals = field(default_factory=lambda: CallTotals("all"))
    models: dict[str, CallTotals] = field(default_factory=dict)
    outcomes: dict[str, CallTotals] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    judge: dict[str, float] = field(default_factory=dict)
    """Seconds of the judge by group of verdict: kept, slow, stopped."""

    @property
    def judged_seconds(self) -> float:
        return sum(self.judge.values())


def list_phases(chronicle: RunHistory) -> list[PhaseRow]:
    """The phases in order, each with what it led to."""
    turns = sorted(chronicle.turns, key=lambda turn: finite_number(turn.get("n")) or 0.0)
    last = chronicle.candidates[-1].n if chronicle.candidates else 0
    starts = [int(finite_number(turn.get("n")) or 0) for turn in turns]
    ends = [start - 1 for start in starts[1:]] + [last]
    wins = chronicle.wins
    return [_phase(wins, *each) for each in zip(turns, starts, ends, strict=False)]


def _phase(all_wins: list[CandidateHistory], turn: LedgerObject, first: int, last: int) -> PhaseRow:
    wins = [seen for seen in all_wins if seen.n <= last]
    return PhaseRow(
        safe_text(turn.get("phase"), 40),
        safe_text(turn.get("family"), 80),
        safe_text(turn.get("reason"), 600),
        tuple(safe_text(name, 80) for name in as_list(turn.get("signals"))),
        finite_number(turn.get("time")),
        first,
        last,
        sum(seen.n >= first for seen in wins),
        next((seen.over_baseline for seen in reversed(wins) if seen.over_baseline), 1.0),
    )


def add_up_costs(chronicle: RunHistory) -> Costs:
    """One pass over calls and candidates."""
    costs = Costs()
    for call in chronicle.calls:
        model, outcome = safe_text(call.get("model"), 80) or "unnamed", safe_text(call.get("outcome"), 40)
        tallies = (
            costs.models.setdefault(model, CallTotals(model)),
            costs.outcomes.setdefault(outcome, CallTotals(outcome)),
        )
        for tally in (costs.total, *tallies):
            tally.add(call)
        if call.get("fault"):
            costs.faults[safe_text(call.get("fault"), 80)] += 1
    for seen in chronicle.candidates:
        if seen.judged:
            group = verdict_group(seen.verdict)
            costs.judge[group] = costs.judge.get(group, 0.0) + (
                finite_number(seen.judged.get("seconds")) or 0.0
            )
    return costs
