"""Whether a side leaves work running on the GPU after its turn: told by how long the judge's own work takes then.

Before every segment the judge draws inputs and poisons outputs, which takes the same time whenever the GPU is its
alone. Kernels of another process are given turns of the GPU's time with it, so a stray one makes that take about twice
as long. Pure: fed with what was timed, it says who.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

SideKey = TypeVar("SideKey", bound=Hashable)

MIN_REFRESHES = 6
"""Refreshes of one key before the next is judged by them."""

MAX_REFRESHES = 64
"""Refreshes of one key that are remembered."""

MIN_SLOW_SHARE_OF_MEDIAN = 0.3
"""How much longer than the quiet ones a refresh must take at the least; sharing the GPU by time slices doubles it."""

MIN_SLOW_SPREADS = 8.0
"""And by how many times the spread of the quiet ones."""

MIN_SLOW_SECONDS = 1e-3
"""And by this at the least: a process that shares the GPU has it for about 2 ms at a time."""

MIN_SLOW_REFRESHES = 6
"""Slow refreshes after one side, and none after any other, that name it: 2^-6 by chance at most, if they fell at
random and the sides took turns by a coin."""

MIN_SLOW_REFRESH_SHARE = 1 / 3
"""Of the refreshes after that side, so many must have been slow: a few in many are noise."""


@dataclass
class ResidualWorkDetector(Generic[SideKey]):
    """The refreshes of one pair of processes; a key tells apart those that take differently long by themselves."""

    _seconds: dict[Hashable, deque[float]] = field(default_factory=dict)
    _judged: Counter[SideKey] = field(default_factory=Counter)
    _slow: Counter[SideKey] = field(default_factory=Counter)

    def record(self, key: Hashable, seconds: float, last_side: SideKey | None) -> bool:
        """One refresh took `seconds`, `after` having run last (None: nobody yet). Whether it was slow."""
        earlier = self._seconds.setdefault(key, deque(maxlen=MAX_REFRESHES))
        is_judged = len(earlier) >= MIN_REFRESHES
        slow = is_judged and seconds > slow_threshold_seconds(earlier)
        earlier.append(seconds)
        if last_side is not None:
            self._judged[last_side] += is_judged
            self._slow[last_side] += slow
        return slow

    def culprit(self) -> SideKey | None:
        """The one side after which alone refreshes were slow, often enough; None while that is not plain."""
        blamed = self.slow_counts()
        if len(blamed) != 1:
            return None
        ((side, times),) = blamed.items()
        return (
            side
            if times >= MIN_SLOW_REFRESHES and times >= MIN_SLOW_REFRESH_SHARE * self._judged[side]
            else None
        )

    def slow_counts(self) -> dict[SideKey, int]:
        """Slow refreshes after each side that had any."""
        return dict(+self._slow)


def slow_threshold_seconds(seconds: deque[float] | list[float]) -> float:
    """Above this a refresh is slow: far outside the quicker half of these.

    The quicker half, since one of two sides may slow every refresh after it.
    """
    quicker = sorted(seconds)[: (len(seconds) + 1) // 2]
    centre = statistics.median(quicker)
    spread = 1.4826 * statistics.median(abs(s - centre) for s in quicker)
    return centre + max(MIN_SLOW_SHARE_OF_MEDIAN * centre, MIN_SLOW_SPREADS * spread, MIN_SLOW_SECONDS)
