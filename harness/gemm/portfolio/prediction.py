"""Which way to run a kernel is the fastest for each m of a matrix of weights, of which some were measured.

Between two measured m a time is the expected one (`LearnedTimes`), times what measured times are of those expected of
them: that factor is interpolated over the logarithm of m. A way that neither m has a time of gets the mean factor, if
enough was learnt of its kind. A kernel of which nothing is expected has its times interpolated themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import log
from typing import NamedTuple

import numpy as np

from hillclimb.harness.gemm.portfolio.learned import KnownWay, LearnedTimes, known_ways
from hillclimb.harness.gemm.portfolio.selection import Matrix
from hillclimb.harness.gemm.shape import GemmShape

STEPS = ((256, 8), (1024, 16), (4096, 64), (16384, 256))
"""Up to which m, and in which steps, choices are made. Sides of tiles are multiples of 8."""

ONE_SIDED = log(1.2)
"""What a way's time is taken to be longer by where only one of both neighbours has it. A bench leaves out what takes
twice as long as the best, so it is slow on the other side. Where times were learnt, they say so themselves."""


class WaySpan(NamedTuple):
    """From this m on, to the next span."""

    start: int
    way: int


@dataclass(frozen=True)
class MeasuredWeight:
    """The shapes of one matrix of weights, by m, and the times of some ways for them."""

    shapes: Sequence[GemmShape]
    ways: Sequence[str]
    times: Matrix
    """Shapes x ways, in any unit; NaN where there is none. Every shape has one."""
    expected: LearnedTimes

    @cached_property
    def measured(self) -> list[int]:
        """The m of the shapes."""
        return [shape.m for shape in self.shapes]

    @cached_property
    def kernels(self) -> list[KnownWay | None]:
        """Of the ways; None where the cost model does not know one."""
        return known_ways(self.ways)

    @cached_property
    def residuals(self) -> Matrix:
        """Shapes x ways: the logarithm of a time over the expected one."""
        found: Matrix = np.log(self.times) - [
            self.expected.logs(self.kernels, shape) for shape in self.shapes
        ]
        return found

    def fastest(self, m: int) -> int:
        """Which way, by the times of this m, or else of both beside it."""
        measured = self.measured
        return int(np.nanargmin(self.times[measured.index(m)] if m in measured else self.expected_logs(m)))

    def expected_logs(self, m: int) -> Matrix:
        """Logarithms of the times of all ways for an m between two measured ones; NaN where none is told."""
        measured = self.measured
        above = next(at for at, known in enumerate(measured) if known > m)
        share = log(m / measured[above - 1]) / log(measured[above] / measured[above - 1])
        low, high = self.residuals[above - 1], self.residuals[above]
        shape = replace(self.shapes[0], m=m)
        is_sure = self.expected.are_sure(self.kernels, shape)
        late = np.where(is_sure, 0.0, ONE_SIDED)
        between = (1 - share) * low + share * high
        between = np.where(np.isnan(low), high + late * (1 - share), between)
        between = np.where(np.isnan(high), low + late * share, between)
        timed = between[is_sure & ~np.isnan(between)]
        between = np.where(np.isnan(between) & is_sure, timed.mean() if len(timed) else 0.0, between)
        told = np.flatnonzero(~np.isnan(between))
        between[told] += self.expected.logs([self.kernels[at] for at in told], shape)
        return between


def fastest_spans(weight: MeasuredWeight) -> list[WaySpan]:
    """For every m from 1; what begins anew has another way than what comes before it."""
    measured = weight.measured
    ends = sorted({*measured, *(m for m in _steps() if measured[0] < m < measured[-1])})
    spans = [WaySpan(1, weight.fastest(ends[0]))]
    for before, end in pairwise(ends):
        way = weight.fastest(end)
        if way != spans[-1].way:
            spans.append(WaySpan(before + 1, way))
    return spans


def _steps() -> Sequence[int]:
    starts = (0, *(end for end, _ in STEPS))
    return [
        m
        for start, (end, step) in zip(starts, STEPS, strict=False)
        for m in range(start + step, end + 1, step)
    ]
