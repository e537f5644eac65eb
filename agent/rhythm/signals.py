"""Signs that a block has given what it has to give: each a name and a sentence with figures, read off the ledger.

near_ties           edits of one family end within the noise of 1.0x: it turns at a limit it does not move
no_win              so many candidates in a row were not kept
sweep_spread        configurations differ by no more than the noise: the knobs decide nothing here
profile_unmoved     there were wins, and the time still goes where it went before
old_wins_unchecked  wins are older than the last change of the source, and nobody tried to do without them
failing             edit after edit does not apply, load or pass the gate
exhausted           there is nothing left to try
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hillclimb.agent.git.trees import is_judged
from hillclimb.agent.rhythm.families import TIMED_REASONS, is_edit
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.agent.record.entries import JudgedEntry, ProfiledEntry, TurnedEntry
    from hillclimb.agent.record.ledger import Candidate, Ledger

TOP_BUCKETS = 3
"""Buckets of a profile that are compared; what comes after them decides nothing."""


@dataclass(frozen=True)
class Signal:
    """One of them, standing."""

    name: str
    sentence: str
    """In words and figures, as a clause."""


def near_ties(tries: Sequence[Candidate], window: int, min_ties: int, width: float) -> Signal | None:
    """`enough` of the `last` tries, all edits of one block, were right but within `width` (log ratio) of 1.0x."""
    ratios = [ratio for candidate in tries[-window:] if (ratio := log_ratio(candidate)) is not None]
    ties = sum(1 for ratio in ratios if abs(ratio) <= width)
    if len(tries) < window or ties < min_ties or any(_is_kept(candidate) for candidate in tries[-window:]):
        return None
    return Signal("near_ties", f"{ties} of the last {window} edits ended within {width:.1%} of 1.0x")


def no_win(tries: Sequence[Candidate], window: int) -> Signal | None:
    """None of the `last` tries was kept."""
    if len(tries) < window or any(_is_kept(candidate) for candidate in tries[-window:]):
        return None
    return Signal("no_win", f"none of the last {count(window, 'candidate')} was kept")


def sweep_spread(tries: Sequence[Candidate], window: int, noise_log_ratio: float) -> Signal | None:
    """The last timed configurations, met by one incumbent, spread by no more than the noise `floor` (log ratio)."""
    timed = [(c, ratio) for c in tries if (ratio := log_ratio(c)) is not None][-window:]
    if len(timed) < max(window, 2) or any(_is_kept(candidate) for candidate, _ in timed):
        return None
    spread = statistics.stdev(ratio for _, ratio in timed)
    if spread > noise_log_ratio:
        return None
    told = (
        f"the last {count(window, 'timed configuration')} spread by {spread:.2%}, "
        f"below the noise floor of {noise_log_ratio:.2%}"
    )
    return Signal("sweep_spread", told)


def profile_unmoved(ledger: Ledger, turn: TurnedEntry, points: float) -> Signal | None:
    """Since `turn` there were wins, and no top bucket's share moved by `points` (0.05 is five percentage points).

    From the last profile before them to the last one after. A profile of a single bucket cannot move and says nothing.
    """
    wins = [win.judged.time for win in ledger.wins if win.n >= turn.n and win.judged]
    earlier = [profiled for profiled in ledger.profiles if wins and profiled.time <= wins[0]]
    if not earlier or ledger.profiles[-1] == earlier[-1]:
        return None
    before, after = _shares(earlier[-1]), _shares(ledger.profiles[-1])
    if len(before) < 2 or before.keys() != after.keys():
        return None
    moved = max(abs(after[name] - before[name]) for name in before)
    if moved >= points:
        return None
    names = ", ".join(after)
    told = f"after the wins the time goes where it went before ({names} moved by {100 * moved:.1f} points at most)"
    return Signal("profile_unmoved", told)


def old_wins_unchecked(ledger: Ledger) -> Signal | None:
    """There are wins older than the last one that changed the source, and no re-ablation of them since."""
    structural, wins = last_source_win(ledger), unchecked_wins(ledger)
    if structural is None or not wins:
        return None
    told = f"{len(wins)} wins are older than the changed source of #{structural.n} and were not checked since"
    return Signal("old_wins_unchecked", told if len(wins) > 1 else told.replace("wins are", "win is", 1))


def failing(ledger: Ledger, turn: TurnedEntry, min_failures: int) -> Signal | None:
    """The last so many ideas since `turn` came to nothing before any clock ran, mending included."""
    ends = _idea_failures(ledger, turn)[-min_failures:]
    if len(ends) < min_failures or not all(ends):
        return None
    told = (
        f"the last {min_failures} ideas did not apply, did not pass the gate, or had been tried ({ends[-1]})"
    )
    return Signal("failing", told)


def exhausted(why: str) -> Signal:
    """The proposer of this phase has nothing; `why` in its own words."""
    return Signal("exhausted", why)


def log_ratio(candidate: Candidate) -> float | None:
    """Log speedup over the incumbent it met, by the last stage that timed it; None where none did."""
    judged = candidate.judged
    seen = judged.estimate if judged else None
    return math.log(seen.speedup) if seen and seen.speedup > 0 else None


def changes_source(candidate: Candidate) -> bool:
    """Whether it is an edit that makes another kernel; taking an old win back is not news of that kind."""
    return is_edit(candidate) and any(is_judged(edit.path) for edit in candidate.proposal.edits)


def last_source_win(ledger: Ledger) -> Candidate | None:
    """The last win that changed the source."""
    return next((win for win in reversed(ledger.wins) if changes_source(win)), None)


def unchecked_wins(ledger: Ledger) -> list[Candidate]:
    """Wins older than the last structural one that nobody tried to do without since, nor took back, oldest first."""
    structural = last_source_win(ledger)
    if structural is None:
        return []
    tried = {candidate.proposal.undoes for candidate in ledger.candidates[structural.n :]}
    gone = {win.proposal.undoes for win in ledger.wins}
    older = [win for win in ledger.wins if win.n < structural.n and win.proposal.undoes is None]
    return [win for win in older if win.n not in tried and win.n not in gone]


def _is_kept(candidate: Candidate) -> bool:
    return candidate.judged is not None and candidate.judged.kept


def _shares(profiled: ProfiledEntry) -> dict[str, float]:
    return {bucket.name: bucket.share for bucket in profiled.profile.buckets[:TOP_BUCKETS]}


def _idea_failures(ledger: Ledger, turn: TurnedEntry) -> list[str]:
    """How each idea since `turn` failed before it was timed, in order; empty where it was timed.

    What was sent back and mended is not an end, and a change that came too late for its incumbent no failure.
    """
    mended = {call.repairs for call in ledger.calls if call.repairs is not None}
    found = [
        (call.time, "an unusable reply")
        for call in ledger.calls
        if call.time > turn.time and call.outcome == "unusable" and call.k not in mended
    ]
    for gone in ledger.dropped.values():
        if gone.time > turn.time and gone.reason == "duplicate":
            found.append((gone.time, "a duplicate"))
    for candidate in ledger.candidates[turn.n - 1 :]:
        if candidate.judged and is_edit(candidate) and candidate.proposal.call not in mended:
            found.append((candidate.judged.time, _failure(candidate.judged)))
    return [end for _, end in sorted(found, key=lambda item: item[0])]


def _failure(judged: JudgedEntry) -> str:
    return "" if judged.kept or judged.reason in TIMED_REASONS else str(judged.reason)
