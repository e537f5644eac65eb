"""Which knobs matter together: what the values of two explain beyond what each explains alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from agent.proposers.landscape import Landscape, Observation
from agent.proposers.study import remembered
from harness.case.knobs import Value

if TYPE_CHECKING:
    import numpy as np

FEWEST = 12
"""Timed configurations below which nothing is said."""
SMALLEST_SHARE = 0.02


def interactions(landscape: Landscape) -> dict[tuple[str, str], float]:
    """Pairs of knobs by the share of the variance of log speedup that only both together explain, largest first.

    The adjusted R^2 of a table of cell means over both, less that of an additive model: an analysis of variance by
    least squares, over the configurations that ran. Pairs below 2 % are left out.
    """
    timed = [seen for seen in remembered(landscape.observations) if seen.value is not None]
    if len(timed) < FEWEST:
        return {}
    shares = {pair: _share(timed, *pair) for pair in combinations(landscape.knobs, 2)}
    found = {pair: share for pair, share in shares.items() if share >= SMALLEST_SHARE}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _share(timed: Sequence[Observation], first: str, second: str) -> float:
    import numpy as np

    values = np.array([seen.value for seen in timed])
    if np.ptp(values) == 0:
        return 0.0
    one, other = ([seen.configuration[name] for seen in timed] for name in (first, second))
    additive = np.hstack([_indicators(one), _indicators(other)])
    cells = _indicators([(a, b) for a, b in zip(one, other, strict=True)])
    return max(0.0, _adjusted(cells, values) - _adjusted(additive, values))


def _indicators(labels: Sequence[Value | tuple[Value, Value]]) -> np.ndarray:
    """(observations, levels): one where the observation has the level."""
    import numpy as np

    levels = sorted(set(labels), key=repr)
    return np.array([[float(label == level) for level in levels] for label in labels])


def _adjusted(design: np.ndarray, values: np.ndarray) -> float:
    """Adjusted R^2 of a least-squares fit; 0 where nothing is left to judge it by."""
    import numpy as np

    solution, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    left = len(values) - int(rank)
    if left <= 0:
        return 0.0
    residual = float(np.sum((values - design @ solution) ** 2)) / left
    return 1.0 - residual / float(np.var(values, ddof=1))
