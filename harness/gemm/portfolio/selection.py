"""Which few kernels serve many shapes: exact answers to set cover and to the p-median problem.

A matrix has a row for each shape and a column for each kernel. An entry is the efficiency, the share of the speed of
the best kernel of that shape; 0 where the kernel cannot run it.

Both are solved as integer programs by HiGHS (scipy.optimize.milp). The p-median is written by levels, after Cornuejols,
Nemhauser and Wolsey, SIAM J. Algebraic Discrete Methods 1 (1980) 261: a shape gains the step from one level of
efficiency to the next if a chosen kernel reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from hillclimb.harness.errors import UsageError

Matrix = NDArray[np.float64]

GAP = 1e-6
"""Of the mean: what two solutions of the same worth may differ by in floating point."""

NAMED_ROWS = 3
"""Shapes that an error names of many."""


def efficiencies(seconds: Matrix) -> Matrix:
    """Of times in seconds, shapes x kernels: the best time of a shape over each; 0 for NaN, which was not measured."""
    known = np.where(np.isnan(seconds), np.inf, seconds)
    best = known.min(axis=1, keepdims=True, initial=np.inf)
    with np.errstate(invalid="ignore"):
        shares: Matrix = np.nan_to_num(best / known, nan=0.0)
    return shares


@dataclass(frozen=True)
class Selection:
    """Chosen kernels, and what a shape loses by having no others."""

    kernels: tuple[int, ...]
    """Columns, in their order."""
    mean: float
    """Weighted mean over the shapes of the best chosen kernel's efficiency."""
    worst: float
    gap: float = 0.0
    """By how much another choice could be better in the mean, at most: above 0 where the time did not suffice."""


@dataclass(frozen=True)
class Selector:
    """Shapes, kernels, and which kernels must and must not be chosen.

    Raises UsageError for a kernel that both must and must not be, and for a shape that no allowed kernel runs.
    """

    efficiency: Matrix
    """Shapes x kernels, from 0 to 1."""
    shapes: Sequence[str]
    weights: NDArray[np.float64] | None = None
    """How often each shape is called, in any unit; None: all alike."""
    required: frozenset[int] = frozenset()
    forbidden: frozenset[int] = frozenset()
    seconds: float = 60.0
    """Time for one integer program. 234 shapes and 600 kernels took 1 to 30 s on one core."""

    def __post_init__(self) -> None:
        if both := self.required & self.forbidden:
            raise UsageError(f"kernel {min(both)} must be there and must not; take one of the two back")
        self._expect_served(self._allowed > 0, "no kernel runs")

    def cover(self, threshold: float, noise: Matrix | float = 0.0) -> Selection:
        """The fewest kernels by which each shape has one of this efficiency; of such sets the one best in the mean.

        `noise` is what an efficiency may be off by: within it of the threshold counts as there.
        """
        serves = (self._allowed >= threshold - noise) & (self._allowed > 0)
        self._expect_served(serves, f"no allowed kernel reaches {threshold:g} of the best at")
        served = LinearConstraint(csr_array(serves.astype(float)), 1, np.inf)
        fewest, _ = self._solve(np.ones(self._kernels), [served], self._bounds())
        return self._best(int(fewest.sum()), serves)

    def best(self, count: int) -> Selection:
        """The kernels, so many at the most, whose mean efficiency is largest.

        Raises UsageError where so many are too few for the required ones.
        """
        if not max(1, len(self.required)) <= count:
            raise UsageError(
                f"{count} kernels are fewer than the {len(self.required) or 1} that must be there"
            )
        return self._best(count, None)

    def curve(self, most: int) -> list[Selection]:
        """`best` for every number from the fewest possible to `most`, or until one more gains nothing."""
        found: list[Selection] = []
        for number in range(max(1, len(self.required)), most + 1):
            found.append(self.best(number))
            if found[-1].mean > 1 - 1e-12 or len(found[-1].kernels) < number:
                break
        return found

    @property
    def _kernels(self) -> int:
        return int(self.efficiency.shape[1])

    @cached_property
    def _allowed(self) -> Matrix:
        allowed = self.efficiency.copy()
        allowed[:, list(self.forbidden)] = 0.0
        return allowed

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        weights = np.ones(len(self.efficiency)) if self.weights is None else self.weights
        shares: NDArray[np.float64] = weights / weights.sum()
        return shares

    def _bounds(self, more: int = 0) -> Bounds:
        low, high = np.zeros(self._kernels + more), np.ones(self._kernels + more)
        low[list(self.required)] = 1
        high[list(self.forbidden)] = 0
        return Bounds(low, high)

    def _best(self, count: int, serves: NDArray[np.bool_] | None) -> Selection:
        gains, reached = self._levels()
        steps = len(gains)
        few = np.concatenate([np.ones(self._kernels), np.zeros(steps)])
        constraints = [
            LinearConstraint(reached, -np.inf, 0),
            LinearConstraint(csr_array(few[None]), 0, count),
        ]
        if serves is not None:
            rows = csr_array(serves.astype(float))
            rows.resize((len(serves), self._kernels + steps))
            constraints.append(LinearConstraint(rows, 1, np.inf))
        cost = np.concatenate([np.full(self._kernels, 1e-9), -gains])
        return self._selection(*self._solve(cost, constraints, self._bounds(steps)))

    def _levels(self) -> tuple[NDArray[np.float64], Any]:
        """Of every step between two levels of a shape its weighted gain, and a sparse matrix whose rows are at most 0.

        Its columns are the kernels, then the steps: a step is reached if the next higher one is, or one of the kernels
        that are just there is chosen.
        """
        gains: list[float] = []
        entries: list[tuple[int, int, int]] = []
        for weight, row in zip(self._weights, self._allowed, strict=True):
            levels = np.unique(row[row > 0])[::-1]
            for place, level in enumerate(levels):
                step = len(gains)
                entries.append((step, self._kernels + step, 1))
                if place:
                    entries.append((step, self._kernels + step - 1, -1))
                entries += [(step, int(kernel), -1) for kernel in np.flatnonzero(row == level)]
                below = levels[place + 1] if place + 1 < len(levels) else 0.0
                gains.append(float(weight * (level - below)))
        at, column, sign = np.array(entries).T
        return np.array(gains), csr_array((sign, (at, column)), (len(gains), self._kernels + len(gains)))

    def _selection(self, chosen: NDArray[np.bool_], gap: float) -> Selection:
        best = self._allowed[:, chosen].max(axis=1)
        kernels = tuple(np.flatnonzero(chosen).tolist())
        return Selection(kernels, float(best @ self._weights), float(best.min()), gap)

    def _solve(
        self, cost: NDArray[np.float64], constraints: Iterable[LinearConstraint], bounds: Bounds
    ) -> tuple[NDArray[np.bool_], float]:
        """Which kernels the cheapest solution has, and by how much a cheaper one could be cheaper."""
        found = milp(
            cost,
            integrality=np.arange(len(cost)) < self._kernels,
            bounds=bounds,
            constraints=list(constraints),
            options={"mip_rel_gap": 0.0, "time_limit": self.seconds},
        )
        if found.x is None:
            problem = f"no set of kernels was found in {self.seconds:g} s: {found.message}"
            raise UsageError(f"{problem}; ask for more kernels, or for less efficiency")
        gap = max(0.0, found.fun - found.mip_dual_bound)
        return np.asarray(found.x[: self._kernels] > 0.5), gap if gap > GAP else 0.0

    def _expect_served(self, serves: NDArray[np.bool_], problem: str) -> None:
        served = np.asarray(serves.any(axis=1)).tolist()
        left = [name for name, is_served in zip(self.shapes, served, strict=True) if not is_served]
        if left:
            more = f" and {len(left) - NAMED_ROWS} more" if len(left) > NAMED_ROWS else ""
            raise UsageError(
                f"{problem} {', '.join(left[:NAMED_ROWS])}{more}; leave it out, or allow more kernels"
            )
