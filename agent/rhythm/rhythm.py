"""The rhythm: when to leave what is being tried, and what to try next. A function of the ledger alone.

A run with knobs begins with a sweep. Then edit blocks follow, each about one family of ideas, each until a plateau
signal stands. After a block that changed the source the knobs are swept again, and wins older than the change are
re-ablated. What comes next is otherwise chosen by record: what gained most a candidate lately, the untried first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from hillclimb.agent.rhythm.arms import arms
from hillclimb.agent.rhythm.families import is_edit, slug
from hillclimb.agent.rhythm.rules import RhythmRules
from hillclimb.agent.rhythm.signals import (
    Signal,
    changes_source,
    exhausted,
    failing,
    near_ties,
    no_win,
    old_wins_unchecked,
    profile_unmoved,
    sweep_spread,
)
from hillclimb.harness.knobs.knobs import KNOBS_FILE

if TYPE_CHECKING:
    from hillclimb.agent.record.entries import Phase, TurnedEntry
    from hillclimb.agent.record.ledger import Candidate, Ledger

NOTHING_SHUT: Mapping[Phase, str] = {}


@dataclass(frozen=True)
class PhaseChange:
    """The rhythm moves on."""

    phase: Phase
    family: str
    """Of an edit block; empty: whatever the author thinks best."""
    reason: str
    signals: tuple[str, ...] = ()


def next_phase(
    ledger: Ledger, rules: RhythmRules, shut: Mapping[Phase, str] = NOTHING_SHUT
) -> PhaseChange | None:
    """Where to go now, or None: stay. `shut` are phases that have nothing to propose, and why.

    Never turns to a phase that is shut, and never stays in one unless all are.
    """
    if not ledger.turns:
        return _begin(shut)
    present = ledger.turns[-1]
    signals = tuple(_stop_signals(present, ledger, rules, shut))
    if not signals:
        return None
    return _move_on(present, signals, ledger, rules, shut)


def block_candidates(ledger: Ledger, present: TurnedEntry) -> list[Candidate]:
    """The judged candidates that the present phase is to be measured by."""
    later = [candidate for candidate in ledger.candidates[present.n - 1 :] if candidate.judged]
    if present.phase == "edit":
        return [candidate for candidate in later if is_edit(candidate)]
    author = "sweep" if present.phase == "sweep" else "ablation"
    return [candidate for candidate in later if candidate.proposal.author == author]


def _begin(shut: Mapping[Phase, str]) -> PhaseChange | None:
    if "sweep" not in shut:
        return PhaseChange("sweep", "", "the run begins: what the knobs can do comes first")
    if "edit" not in shut:
        return PhaseChange("edit", "", f"the run begins with edits: {shut['sweep']}")
    return None if "ablate" in shut else PhaseChange("ablate", "", f"the run begins: {shut['edit']}")


def _stop_signals(
    present: TurnedEntry, ledger: Ledger, rules: RhythmRules, shut: Mapping[Phase, str]
) -> Iterator[Signal]:
    """The signals that stand against going on."""
    if present.phase in shut:
        yield exhausted(shut[present.phase])
        return
    tries = block_candidates(ledger, present)
    match present.phase:
        case "sweep":
            found = _sweep_signals(tries, present is ledger.turns[0], ledger, rules)
        case "edit":
            found = _edit_signals(tries, present, ledger, rules)
        case _:
            found = _ablation_signals(tries, ledger, rules)
    yield from (signal for signal in found if signal)


def _sweep_signals(
    tries: list[Candidate], is_first: bool, ledger: Ledger, rules: RhythmRules
) -> Iterator[Signal | None]:
    most, patience = (
        (rules.max_first_sweep, rules.first_sweep_patience)
        if is_first
        else (rules.max_sweep, rules.sweep_patience)
    )
    floor = 1.5 * ledger.baselined.pair_sd if ledger.baselined else 0.0
    yield sweep_spread(tries, rules.spread_configurations, floor)
    yield no_win(tries, patience)
    yield _full(tries, most)


def _edit_signals(
    tries: list[Candidate], present: TurnedEntry, ledger: Ledger, rules: RhythmRules
) -> Iterator[Signal | None]:
    yield near_ties(tries, rules.edit_patience - 1, rules.min_ties, tie_log_ratio(ledger, rules))
    yield no_win(tries, rules.edit_patience)
    yield failing(ledger, present, rules.max_failures)
    if no_win(tries, rules.unmoved_patience):
        yield profile_unmoved(ledger, present, rules.min_share_change)
    yield _full(tries, rules.max_edits)


def _ablation_signals(tries: list[Candidate], ledger: Ledger, rules: RhythmRules) -> Iterator[Signal | None]:
    if not old_wins_unchecked(ledger):
        yield Signal("checked", f"the older wins were checked, {len(tries)} of them")
    yield _full(tries, rules.max_ablations)


def _full(tries: list[Candidate], most: int) -> Signal | None:
    return Signal("full", f"the block's {most} candidates are used up") if len(tries) >= most else None


def tie_log_ratio(ledger: Ledger, rules: RhythmRules) -> float:
    """Log ratio within which two speeds count as the same: the minimum effect, or the noise where that is larger."""
    noise = 2 * ledger.baselined.pair_sd if ledger.baselined else 0.0
    return max(math.log1p(rules.minimum_effect), noise)


def _move_on(
    present: TurnedEntry,
    signals: tuple[Signal, ...],
    ledger: Ledger,
    rules: RhythmRules,
    shut: Mapping[Phase, str],
) -> PhaseChange | None:
    """To what is due, else to what has the best record; nowhere (stay) where there is nothing else."""
    names = tuple(signal.name for signal in signals)
    told = "; ".join(signal.sentence for signal in signals)
    due = _due_phase(present, ledger, rules, shut)
    if due:
        phase, why = due
        stands = (*names, "old_wins_unchecked") if phase == "ablate" else names
        return PhaseChange(phase, "", f"{told}; {why}", stands)
    others = [arm for arm in arms(ledger, rules, shut) if (arm.phase, arm.family) != _place(present)]
    if others:
        left = _times_left(ledger)
        best = max(
            others, key=lambda arm: (-left[arm.phase, arm.family], arm.score, arm.open_ideas, arm.family)
        )
        return PhaseChange(best.phase, best.family, f"{told}; {best.reason}", names)
    return _last_resort(told, names, shut) if present.phase in shut else None


def _place(present: TurnedEntry) -> tuple[Phase, str]:
    return present.phase, slug(present.family)


def _times_left(ledger: Ledger) -> Counter[tuple[Phase, str]]:
    """How often each was left since the last win: without another one, everything gets its turn before any again."""
    last = ledger.wins[-1].n if ledger.wins else 0
    return Counter(_place(turn) for turn, after in pairwise(ledger.turns) if after.n > last)


def _due_phase(
    present: TurnedEntry, ledger: Ledger, rules: RhythmRules, shut: Mapping[Phase, str]
) -> tuple[Phase, str] | None:
    """What a changed source makes necessary: its knobs swept, the wins older than it checked.

    Every block of such a kind that won nothing doubles what it takes to be due again.
    """
    fresh = _source_wins_since(ledger, "sweep")
    brought = any(edit.path == KNOBS_FILE for win in fresh for edit in win.proposal.edits)
    enough = rules.sweep_after * 2 ** _blocks_without_win(ledger, "sweep")
    if "sweep" not in shut and fresh and (brought or len(fresh) >= enough):
        what = "the source and its knobs" if brought else "the source"
        return "sweep", f"{_names(fresh)} changed {what}: swept again"
    unchecked, fresh = old_wins_unchecked(ledger), _source_wins_since(ledger, "ablate")
    enough = rules.ablate_after * 2 ** _blocks_without_win(ledger, "ablate")
    if "ablate" not in shut and present.phase != "ablate" and unchecked and len(fresh) >= enough:
        return "ablate", unchecked.sentence
    return None


def _source_wins_since(ledger: Ledger, phase: Phase) -> list[Candidate]:
    """Wins that changed the source since the last block of this phase began."""
    begun = max((turn.n for turn in ledger.turns if turn.phase == phase), default=0)
    return [win for win in ledger.wins if win.n >= begun and changes_source(win)]


def _blocks_without_win(ledger: Ledger, phase: Phase) -> int:
    """Blocks of this phase in a row, up to now, in which nothing was kept."""
    wins = [win.n for win in ledger.wins]
    ends = [turn.n for turn in ledger.turns[1:]] + [len(ledger.candidates) + 1]
    dry = 0
    for turn, end in zip(reversed(ledger.turns), reversed(ends), strict=True):
        if turn.phase == phase:
            if any(turn.n <= n < end for n in wins):
                break
            dry += 1
    return dry


def _names(wins: list[Candidate]) -> str:
    return ", ".join(f"#{win.n}" for win in wins)


def _last_resort(told: str, names: tuple[str, ...], shut: Mapping[Phase, str]) -> PhaseChange | None:
    phases: tuple[Phase, ...] = ("edit", "sweep", "ablate")
    left = next((phase for phase in phases if phase not in shut), None)
    return PhaseChange(left, "", f"{told}; nothing else is left", names) if left else None
