"""Which knobs matter together: what the values of two explain beyond what each explains alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from hillclimb.agent.sweep.landscape import KnobObservation, Landscape
from hillclimb.agent.sweep.optuna_study import best_and_latest

if TYPE_CHECKING:
    import numpy as np

MIN_TIMED_CONFIGURATIONS = 12
"""Timed configurations below which nothing is said."""
MIN_SHARE = 0.02
MAX_KNOBS, MAX_LEVELS = 8, 8
"""The most important knobs are looked at in pairs, and rare values of one taken together: a second at the most."""


def interactions(landscape: Landscape, important: Sequence[str]) -> dict[tuple[str, str], float]:
    """Pairs of knobs by the share of the variance of log speedup that only both together explain, largest first.

    `important` are the knobs worth pairing, the most important first. The share is the adjusted R^2 of a table of cell
    means over both, less that of an additive model: an analysis of variance by least squares, over the
    configurations that ran. Pairs below 2 % are left out.
    """
    import numpy as np

    timed = [seen for seen in best_and_latest(landscape.observations) if seen.value is not None]
    values = np.array([seen.value for seen in timed], dtype=float)
    if len(timed) < MIN_TIMED_CONFIGURATIONS or np.ptp(values) == 0:
        return {}
    levels = {name: _levels(timed, name) for name in important[:MAX_KNOBS]}
    shares = {
        (one, other): _share(levels[one], levels[other], values) for one, other in combinations(levels, 2)
    }
    found = {pair: share for pair, share in shares.items() if share >= MIN_SHARE}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _levels(timed: Sequence[KnobObservation], name: str) -> np.ndarray:
    """(observations,): each one's value as a small number; values beyond the most frequent ones share one."""
    import numpy as np

    values = [repr(seen.configuration[name]) for seen in timed]
    frequent = [value for value, _ in Counter(values).most_common(MAX_LEVELS - 1)]
    number = {value: index for index, value in enumerate(frequent)}
    return np.array([number.get(value, len(frequent)) for value in values])


def _share(one: np.ndarray, other: np.ndarray, values: np.ndarray) -> float:
    import numpy as np

    additive = np.hstack([_indicators(one), _indicators(other)])
    cells = _indicators(one * MAX_LEVELS + other)
    return max(0.0, _adjusted(cells, values) - _adjusted(additive, values))


def _indicators(levels: np.ndarray) -> np.ndarray:
    """(observations, levels): one where the observation has the level."""
    import numpy as np

    columns: np.ndarray = np.equal.outer(levels, np.unique(levels))
    return columns.astype(float)


def _adjusted(design: np.ndarray, values: np.ndarray) -> float:
    """Adjusted R^2 of a least-squares fit; 0 where nothing is left to judge it by."""
    import numpy as np

    solution, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    left = len(values) - int(rank)
    if left <= 0:
        return 0.0
    residual = float(np.sum((values - design @ solution) ** 2)) / left
    return 1.0 - residual / float(np.var(values, ddof=1))
