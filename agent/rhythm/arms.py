"""What a block could be about next, each with its record: the knobs, every family of edits, an edit of any kind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hillclimb.agent.rhythm.families import Family, families, gain, is_edit
from hillclimb.agent.rhythm.rules import RhythmRules

if TYPE_CHECKING:
    from hillclimb.agent.record.entries import Phase
    from hillclimb.agent.record.ledger import Candidate, Ledger


@dataclass(frozen=True)
class Arm:
    """Something that a block could be about, with its record."""

    phase: Phase
    family: str
    score: float
    """Expected gain a candidate, log ratio."""
    open_ideas: int
    reason: str


def arms(ledger: Ledger, rules: RhythmRules, shut: Mapping[Phase, str]) -> Iterator[Arm]:
    record = _DiscountedGain(ledger, rules)
    if "sweep" not in shut:
        tries = [c for c in ledger.candidates if c.judged and c.proposal.author == "sweep"]
        score = record.score(tries)
        yield Arm("sweep", "", score, 0, f"next the knobs again, {_worth(score)}")
    if "edit" not in shut:
        every = families(ledger)
        for family in every.values():
            if family.name:
                yield _family_arm(family, record)
        score = record.score(_free_edits(ledger))
        yield Arm("edit", "", score, 0, f"next an edit of whatever family, {_worth(score)}")


def _family_arm(family: Family, record: _DiscountedGain) -> Arm:
    tried, ideas = len(family.candidates), len(family.open_ideas)
    score = record.score(family.candidates)
    known = f"{tried} tried, {len(family.kept)} kept" if tried else "not tried yet"
    why = f"next the family {family.name}: {known}, {ideas} ideas open, {_worth(score)}"
    return Arm("edit", family.name, score, ideas, why)


def _worth(score: float) -> str:
    return f"expected to gain {score:.2%} a candidate"


def _free_edits(ledger: Ledger) -> list[Candidate]:
    """Edits whose author was free to choose the family."""
    found, phase = [], 0
    for candidate in ledger.candidates:
        while phase + 1 < len(ledger.turns) and ledger.turns[phase + 1].n <= candidate.n:
            phase += 1
        free = phase < len(ledger.turns) and not ledger.turns[phase].family
        if candidate.judged and is_edit(candidate) and free:
            found.append(candidate)
    return found


class _DiscountedGain:
    """Gains a candidate, the older the less they count (a discounted average, shrunk towards that of the run)."""

    def __init__(self, ledger: Ledger, rules: RhythmRules) -> None:
        self._now, self._rules = len(ledger.candidates), rules
        weight, total = self._discounted_sum(candidate for candidate in ledger.candidates if candidate.judged)
        least = math.log1p(rules.minimum_effect) / 10
        self._prior_gain = max(rules.optimism * total / weight if weight else 0.0, least)

    def score(self, tries: Iterable[Candidate]) -> float:
        weight, total = self._discounted_sum(tries)
        return (total + self._rules.prior_candidates * self._prior_gain) / (
            weight + self._rules.prior_candidates
        )

    def _discounted_sum(self, tries: Iterable[Candidate]) -> tuple[float, float]:
        weight = total = 0.0
        for candidate in tries:
            counts = self._rules.discount ** (self._now - candidate.n)
            weight, total = weight + counts, total + counts * gain(candidate)
        return weight, total
