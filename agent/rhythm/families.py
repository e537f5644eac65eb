"""The candidate set: families of ideas, what was tried of each and what came of it, read off the ledger."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hillclimb.harness.records import Reason

if TYPE_CHECKING:
    from hillclimb.agent.record.ledger import Candidate, Ledger

MAX_COMPARED_IDEAS = 200
"""Ideas and candidates of one family that are compared with each other; older ones are past caring about."""
MIN_WORD_OVERLAP = 0.6
"""Share of their words that two one-line ideas have in common when one counts as the other, taken up."""
MAX_NAME_CHARS = 40

TIMED_REASONS = frozenset({Reason.SLOWER, Reason.NO_PROVEN_GAIN, Reason.NOT_PER_CALL, Reason.GUARDRAIL})
"""Rejections by the clock: the candidate was right, and not faster."""


@dataclass(frozen=True)
class Family:
    """One kind of change."""

    name: str
    """Empty: changes of which nobody named the kind."""
    candidates: tuple[Candidate, ...] = ()
    """Its edits that were judged, oldest first."""
    open_ideas: tuple[str, ...] = ()
    """Suggested and not taken up, oldest first."""
    tried_ideas: tuple[str, ...] = ()
    """Suggested and tried since."""
    blocks: int = 0
    """Edit blocks that were about it."""

    @property
    def kept(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self.candidates if gain(candidate))

    @property
    def best(self) -> Candidate | None:
        """Its largest win."""
        return max(self.kept, key=gain, default=None)


def families(ledger: Ledger) -> dict[str, Family]:
    """Every family that anyone named, in the order in which they came up; "" only where edits have no family."""
    tried, suggested, blocks = _tried(ledger), _suggested(ledger), _blocks(ledger)
    found = {}
    for name in dict.fromkeys((*tried, *suggested, *blocks)):
        ideas = tuple(dict.fromkeys(suggested[name]))[-MAX_COMPARED_IDEAS:]
        seen = [_words(candidate.proposal.idea) for candidate in tried[name][-MAX_COMPARED_IDEAS:]]
        taken = tuple(idea for idea in ideas if _resembles_any(_words(idea), seen))
        left = tuple(idea for idea in ideas if idea not in taken)
        found[name] = Family(name, tuple(tried[name]), left, taken, blocks[name])
    return found


def slug(name: str) -> str:
    """A family's name as it is compared: lower case, words joined by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_NAME_CHARS].strip("-")


def is_edit(candidate: Candidate) -> bool:
    """Whether somebody with ideas proposed it: neither the sweep nor a re-ablation."""
    return candidate.proposal.author in ("llm", "human", "agent")


def gain(candidate: Candidate) -> float:
    """Log speedup that a win brought over the incumbent of its time; 0 for all others."""
    judged = candidate.judged
    if judged is None or not judged.kept:
        return 0.0
    seen = judged.estimate
    return math.log(seen.speedup) if seen and seen.speedup > 0 else 0.0


def names_of(ledger: Ledger, candidate: Candidate) -> frozenset[str]:
    """The family its author gave it and the one that was asked for, which may differ."""
    call = ledger.call_of(candidate)
    given = {slug(candidate.proposal.family), slug(call.family) if call else ""} - {""}
    return frozenset(given or {""})


def _tried(ledger: Ledger) -> defaultdict[str, list[Candidate]]:
    found: defaultdict[str, list[Candidate]] = defaultdict(list)
    for candidate in ledger.candidates:
        if candidate.judged and is_edit(candidate):
            for name in sorted(names_of(ledger, candidate)):
                found[name].append(candidate)
    return found


def _suggested(ledger: Ledger) -> defaultdict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for call in ledger.calls:
        for idea in call.ideas:
            if name := slug(idea.family):
                found[name].append(" ".join(idea.idea.split()))
    return found


def _blocks(ledger: Ledger) -> defaultdict[str, int]:
    found: defaultdict[str, int] = defaultdict(int)
    for turn in ledger.turns:
        if turn.phase == "edit" and turn.family:
            found[slug(turn.family)] += 1
    return found


def _words(idea: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", idea.lower()))


def _resembles_any(words: frozenset[str], others: Iterable[frozenset[str]]) -> bool:
    return any(
        words == other or len(words & other) >= MIN_WORD_OVERLAP * len(words | other) for other in others
    )
