"""Which clocks a gain must show on. A GPU's own events are precise, and told by the side that they are of.

They decide only inside the interval of the judge's own clock. The time without the lead-in, to which work could be
moved, counts only inside that of the time with it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.errors import CandidateFault
from harness.judge import evidence
from harness.readings import Clock, calm_log_ratio, middle_log_ratio, seen, seen_with_lead, told
from harness.records import Pair, Reason

SEEN = 0.1
"""Chance that a clock on which there is no gain is taken to see one, shared out over the looks taken at it; the
e-process has its own, far smaller."""

MOST_HONEST = 200
"""Pairs of honest noise that are remembered."""


@dataclass(frozen=True)
class Wide:
    """One way to read what no candidate can touch, and less precise for that."""

    name: str
    clock: Clock
    read: Callable[[Pair, Clock], float]
    forgives: bool = False
    """One pair, which a burst of somebody else's work may have spoiled."""


SEES = (
    Wide("the judge's clock", seen, calm_log_ratio),
    Wide("the judge's clock with the lead-in", seen_with_lead, calm_log_ratio),
)
"""On which there must be a gain."""

VOUCHES = (
    *SEES,
    Wide("the judge's clock over all segments", seen, middle_log_ratio, forgives=True),
    Wide(
        "the judge's clock with the lead-in over all segments",
        seen_with_lead,
        middle_log_ratio,
        forgives=True,
    ),
)
"""Which must bear out what the events tell. The last two are there for lies in just those segments that calm readings
leave out."""


@dataclass
class Clocks:
    """Remembers how far honest clocks drift apart on this device, and holds would-be wins to it."""

    _gaps: dict[str, list[float]] = field(default_factory=lambda: {wide.name: [] for wide in VOUCHES})

    def learn(self, pairs: Sequence[Pair]) -> None:
        """Take pairs of two equal sides for what they are."""
        for wide in VOUCHES:
            gaps = self._gaps[wide.name]
            gaps += [middle_log_ratio(pair) - wide.read(pair, wide.clock) for pair in pairs]
            del gaps[:-MOST_HONEST]

    @property
    def is_taught(self) -> bool:
        """Whether enough honest pairs were seen."""
        return all(len(gaps) >= evidence.FEWEST_HONEST for gaps in self._gaps.values())

    def expect_agreement(self, pairs: Sequence[Pair]) -> None:
        """Raises CandidateFault where the gain on the precise clock is not borne out by the judge's own."""
        if any(block.events is None for pair in pairs for block in pair.blocks):
            return
        narrow = [middle_log_ratio(pair) for pair in pairs]
        for wide in VOUCHES:
            values = [wide.read(pair, wide.clock) for pair in pairs]
            overhead = overhead_of(pairs, wide.clock)
            gaps = self._gaps[wide.name]
            found = evidence.agreement(narrow, values, gaps, overhead, forgiving=wide.forgives)
            if not found.holds:
                says, sees = (math.exp(statistics.fmean(gains)) for gains in (narrow, values))
                detail = (
                    f"{says:.4f}x by its device events, but {sees:.4f}x by {wide.name}: {found.gap:.2%} apart, "
                    f"where honest clocks stay within {found.room:.2%}"
                )
                raise CandidateFault(Reason.CLOCKS_DISAGREE, detail)

    def expect_gain(self, pairs: Sequence[Pair], looks: int = 1) -> None:
        """The judge's own clocks must see a gain themselves. Raises CandidateFault where they do not.

        Without this a candidate that is no faster could claim as much as the clocks' scatter hides. `looks` says how
        often they may be asked, each time over more pairs.
        """
        if unseen := _unseen(pairs, looks):
            raise CandidateFault(Reason.CLOCKS_DISAGREE, unseen)

    def see_gain(self, pairs: Sequence[Pair], looks: int = 1) -> bool:
        """Whether `expect_gain` is content."""
        return not _unseen(pairs, looks)


def _unseen(pairs: Sequence[Pair], looks: int) -> str:
    """Which of the judge's clocks sees no gain; empty where each does, or nothing is told."""
    if any(block.events is None for pair in pairs for block in pair.blocks):
        return ""
    for wide in SEES:
        values = [wide.read(pair, wide.clock) for pair in pairs]
        if evidence.upper_bound([-value for value in values], SEEN / looks) >= 0:
            return f"{wide.name} sees no gain: {math.exp(statistics.fmean(values)):.4f}x over {len(values)} pairs"
    return ""


def overhead_of(pairs: Sequence[Pair], clock: Clock) -> float:
    """What only this clock sees of the opponent's segments, as a share of its events."""
    shares = [
        wide / narrow - 1
        for pair in pairs
        for block in pair.blocks
        for wide, narrow, letter in zip(clock(block), told(block), block.order, strict=True)
        if letter == "B"
    ]
    return max(0.0, statistics.median(shares))
