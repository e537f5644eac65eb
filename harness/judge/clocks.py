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
from harness.judge.duel import clock_log_ratio, log_ratio, whole_log_ratio
from harness.records import Block, Pair, Reason

Ratio = Callable[[Block], float]

WIDE: dict[str, Ratio] = {
    "the judge's clock": clock_log_ratio,
    "the judge's clock with the lead-in": whole_log_ratio,
}
"""What no candidate can touch, and less precise for that."""

SEEN = 0.1
"""Chance that a clock on which there is no gain is taken to see one, shared out over the looks taken at it; the
e-process has its own, far smaller."""

MOST_HONEST = 200
"""Pairs of honest noise that are remembered."""


@dataclass
class Clocks:
    """Remembers how far honest clocks drift apart on this device, and holds would-be wins to it."""

    _gaps: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in WIDE})

    def learn(self, pairs: Sequence[Pair]) -> None:
        """Take pairs of two equal sides for what they are."""
        for name, gaps in self._gaps.items():
            gaps += [
                n - w for n, w in zip(_values(pairs, log_ratio), _values(pairs, WIDE[name]), strict=True)
            ]
            del gaps[:-MOST_HONEST]

    @property
    def is_taught(self) -> bool:
        """Whether enough honest pairs were seen."""
        return all(len(gaps) >= evidence.FEWEST_HONEST for gaps in self._gaps.values())

    def expect_agreement(self, pairs: Sequence[Pair]) -> None:
        """Raises CandidateFault where the gain on the precise clock is not borne out by the judge's own."""
        if any(block.events is None for pair in pairs for block in pair.blocks):
            return
        narrow = _values(pairs, log_ratio)
        for name, ratio in WIDE.items():
            wide = _values(pairs, ratio)
            found = evidence.agreement(narrow, wide, self._gaps[name], _overhead(pairs, name))
            if not found.holds:
                told, seen = (math.exp(statistics.fmean(values)) for values in (narrow, wide))
                detail = (
                    f"{told:.4f}x by its device events, but {seen:.4f}x by {name}: {found.gap:.2%} apart, "
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
    for name, ratio in WIDE.items():
        wide = _values(pairs, ratio)
        if evidence.upper_bound([-value for value in wide], SEEN / looks) >= 0:
            return f"{name} sees no gain: {math.exp(statistics.fmean(wide)):.4f}x over {len(wide)} pairs"
    return ""


def _values(pairs: Sequence[Pair], ratio: Ratio) -> list[float]:
    return [statistics.median(ratio(block) for block in pair.blocks) for pair in pairs]


def _overhead(pairs: Sequence[Pair], name: str) -> float:
    """What only the wide clock sees of the opponent's segments, as a share of its events."""
    shares = [
        wide / told - 1
        for pair in pairs
        for block in pair.blocks
        for wide, told, letter in zip(_wide(block, name), block.events or (), block.order, strict=True)
        if letter == "B"
    ]
    return max(0.0, statistics.median(shares))


def _wide(block: Block, name: str) -> tuple[float, ...]:
    return block.seconds if name == "the judge's clock" else block.whole or block.seconds
