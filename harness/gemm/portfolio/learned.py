"""Times of ways and sizes that were not measured: the cost model, corrected by what measured times say it is off by.

The correction is a regression by scikit-learn's gradient-boosted trees (Friedman, Annals of Statistics 29, 2001, 1189).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.families.run_option import RunOption, as_run
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.generator.types import AnyPoint, way_named
from hillclimb.harness.gemm.portfolio.selection import Matrix, efficiencies
from hillclimb.harness.gemm.providers.ways import MOST_WASTE, fits, is_for, way_seconds, way_traits
from hillclimb.harness.gemm.shape import Dtype, GemmShape

LEAST_TIMES = 1000
"""Of one dtype, and of single products or of those of groups. Of fewer nothing is learnt."""

TREES = 400
NEARNESS = 4
"""Power of an efficiency, by which its time counts: those far from the best need not be exact."""

KnownWay = tuple[AnyPoint, RunOption]
OwnWay = tuple[WarpgroupPoint, RunOption]


def known_ways(names: Sequence[str]) -> list[KnownWay | None]:
    """Of provider:kernel, the generated kernels as they are run, and how; None for any other."""
    return [_as_run(way_named(name.partition(":")[2])) for name in names]


class LearnedTimes:
    """Of ways to run generated kernels, from times of some for some shapes."""

    def __init__(self, shapes: Sequence[GemmShape], names: Sequence[str], times: Matrix) -> None:
        """`times` has a row for each shape and a column for each way, in any unit; NaN where there is none.

        Raises UsageError where there is enough to learn from, and scikit-learn is missing.
        """
        own = {at: way for at, way in enumerate(map(_own, known_ways(names))) if way}
        measured = [(row, at) for row, at in np.argwhere(~np.isnan(times)) if at in own]
        counts = Counter(_kind(own[at]) for _, at in measured)
        self._kinds = {kind for kind, count in counts.items() if count >= LEAST_TIMES}
        if self._kinds:
            taught = [(row, at) for row, at in measured if _kind(own[at]) in self._kinds]
            shares = efficiencies(times) ** NEARNESS
            self._trees = _regression()
            self._trees.fit(
                [way_traits(*own[at], shapes[row]) for row, at in taught],
                [log(times[row, at] / way_seconds(*own[at], shapes[row])) for row, at in taught],
                sample_weight=[shares[row, at] for row, at in taught],
            )

    @property
    def is_taught(self) -> bool:
        """Whether there was enough to learn from."""
        return bool(self._kinds)

    def logs(self, ways: Sequence[KnownWay | None], shape: GemmShape) -> Matrix:
        """Logarithms of times, but for a constant; 0 for ways that are not known."""
        found = np.array([log(way_seconds(*way, shape)) if way else 0.0 for way in ways])
        own = {at: way for at, way in enumerate(map(self._learned, ways)) if way}
        if own:
            found[list(own)] += self._trees.predict([way_traits(*way, shape) for way in own.values()])
        return found

    def are_sure(self, ways: Sequence[KnownWay | None], shape: GemmShape) -> NDArray[np.bool_]:
        """Which ways need no time of their own: it was learnt, and they are for the shape and worth a look."""
        return np.array([self._is_sure(self._learned(way), shape) for way in ways])

    def _is_sure(self, way: OwnWay | None, shape: GemmShape) -> bool:
        return bool(way and is_for(way[0], shape) and fits(*way, shape, MOST_WASTE))

    def _learned(self, way: KnownWay | None) -> OwnWay | None:
        """It, if enough was learnt of its kind."""
        own = _own(way)
        return own if own and _kind(own) in self._kinds else None


def _kind(way: OwnWay) -> tuple[Dtype, bool]:
    return way[0].dtype, way[0].is_grouped


def _as_run(way: KnownWay | None) -> KnownWay | None:
    own = _own(way)
    return (as_run(*own), own[1]) if own else way


def _own(way: KnownWay | None) -> OwnWay | None:
    """It, if the regression is of such kernels."""
    point, option = way or (None, None)
    return (point, option) if isinstance(point, WarpgroupPoint) and option else None


def _regression() -> Any:
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise UsageError(
            "to learn from so many times takes scikit-learn: pip install 'hillclimb[gemm]'"
        ) from None
    return HistGradientBoostingRegressor(max_iter=TREES, early_stopping=False, random_state=0)
