"""Which clocks a gain must show on. A GPU's own events are precise, and told by the side that they are of.

They decide only inside the interval of the judge's own clock. The time without the lead-in, to which work could be
moved, counts only inside that of the time with it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Pair, Reason
from hillclimb.harness.statistics import evidence
from hillclimb.harness.statistics.readings import (
    ReadClock,
    event_seconds,
    median_log_ratio,
    quantile_log_ratio,
    wall_seconds,
    wall_seconds_with_lead_in,
)
from hillclimb.harness.wording import count

FALSE_GAIN_RATE = 0.1
"""Chance that a clock on which there is no gain is taken to see one, shared out over the looks taken at it; the
e-process has its own, far smaller."""

MAX_HONEST = 200
"""Pairs of honest noise that are remembered."""


@dataclass(frozen=True)
class WallClockReading:
    """One way to read what no candidate can touch, and less precise for that."""

    name: str
    clock: ReadClock
    read: Callable[[Pair, ReadClock], float]
    drops_worst_pair: bool = False
    """One pair, which a burst of somebody else's work may have spoiled."""


GAIN_READINGS = (
    WallClockReading("the judge's clock", wall_seconds, quantile_log_ratio),
    WallClockReading("the judge's clock with the lead-in", wall_seconds_with_lead_in, quantile_log_ratio),
)
"""On which there must be a gain."""

AGREEMENT_READINGS = (
    *GAIN_READINGS,
    WallClockReading(
        "the judge's clock over all segments", wall_seconds, median_log_ratio, drops_worst_pair=True
    ),
    WallClockReading(
        "the judge's clock with the lead-in over all segments",
        wall_seconds_with_lead_in,
        median_log_ratio,
        drops_worst_pair=True,
    ),
)
"""Which must bear out what the events tell. The last two are there for lies in just those segments that calm readings
leave out."""


@dataclass
class ClockCalibration:
    """Remembers how far honest clocks drift apart on this device, and holds would-be wins to it."""

    _gaps: dict[str, list[float]] = field(
        default_factory=lambda: {wide.name: [] for wide in AGREEMENT_READINGS}
    )

    def calibrate(self, pairs: Sequence[Pair]) -> None:
        """Take pairs of two equal sides for what they are."""
        for wide in AGREEMENT_READINGS:
            gaps = self._gaps[wide.name]
            gaps += [median_log_ratio(pair) - wide.read(pair, wide.clock) for pair in pairs]
            del gaps[:-MAX_HONEST]

    @property
    def is_calibrated(self) -> bool:
        """Whether enough honest pairs were seen."""
        return all(len(gaps) >= evidence.MIN_CALIBRATION_PAIRS for gaps in self._gaps.values())

    def require_agreement(self, pairs: Sequence[Pair]) -> None:
        """Raises CandidateFault where the gain on the precise clock is not borne out by the judge's own."""
        if any(block.events is None for pair in pairs for block in pair.blocks):
            return
        narrow = [median_log_ratio(pair) for pair in pairs]
        for wide in AGREEMENT_READINGS:
            values = [wide.read(pair, wide.clock) for pair in pairs]
            overhead = overhead_of(pairs, wide.clock)
            gaps = self._gaps[wide.name]
            found = evidence.clock_agreement(narrow, values, gaps, overhead, drop_worst=wide.drops_worst_pair)
            if not found.holds:
                says, sees = (math.exp(statistics.fmean(gains)) for gains in (narrow, values))
                detail = (
                    f"{says:.4f}x by its device events, but {sees:.4f}x by {wide.name}: {found.gap:.2%} apart, "
                    f"where honest clocks stay within {found.tolerance:.2%}"
                )
                raise CandidateFault(Reason.CLOCKS_DISAGREE, detail)

    def require_gain(self, pairs: Sequence[Pair], looks: int = 1) -> None:
        """The judge's own clocks must see a gain themselves. Raises CandidateFault where they do not.

        Without this a candidate that is no faster could claim as much as the clocks' scatter hides. `looks` says how
        often they may be asked, each time over more pairs.
        """
        if unseen := _unseen(pairs, looks):
            raise CandidateFault(Reason.CLOCKS_DISAGREE, unseen)

    def shows_gain(self, pairs: Sequence[Pair], looks: int = 1) -> bool:
        """Whether the judge's own clocks see a gain, as `require_gain` asks."""
        return not _unseen(pairs, looks)


def _unseen(pairs: Sequence[Pair], looks: int) -> str:
    """Which of the judge's clocks sees no gain; empty where each does, or nothing is told."""
    if any(block.events is None for pair in pairs for block in pair.blocks):
        return ""
    for wide in GAIN_READINGS:
        values = [wide.read(pair, wide.clock) for pair in pairs]
        if evidence.upper_bound([-value for value in values], FALSE_GAIN_RATE / looks) >= 0:
            seen = f"{math.exp(statistics.fmean(values)):.4f}x over {count(len(values), 'pair')}"
            return f"{wide.name} sees no gain: {seen}"
    return ""


def overhead_of(pairs: Sequence[Pair], clock: ReadClock) -> float:
    """What only this clock sees of the opponent's segments, as a share of its events."""
    shares = [
        wide / narrow - 1
        for pair in pairs
        for block in pair.blocks
        for wide, narrow, letter in zip(clock(block), event_seconds(block), block.order, strict=True)
        if letter == "B"
    ]
    return max(0.0, statistics.median(shares))
