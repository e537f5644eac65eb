"""Which way to run a kernel is the fastest for each m of a matrix of weights, of which some were measured.

Between two measured m a time is what the cost model says, times what measured times are of the model's: that factor is
interpolated over the logarithm of m. A kernel that the model does not know has its times interpolated themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import log
from typing import NamedTuple

import numpy as np

from hillclimb.harness.gemm.families.run_option import RunOption, compiled_name, option_named
from hillclimb.harness.gemm.generator.types import AnyPoint, point_named
from hillclimb.harness.gemm.portfolio.selection import Matrix
from hillclimb.harness.gemm.providers.ways import way_seconds
from hillclimb.harness.gemm.shape import GemmShape

STEPS = ((256, 8), (1024, 16), (4096, 64), (16384, 256))
"""Up to which m, and in which steps, choices are made. Sides of tiles are multiples of 8."""

ONE_SIDED = log(1.2)
"""What a way's time is taken to be longer by where only one of both neighbours has it. A bench leaves out what takes
twice as long as the best, so it is slow on the other side."""


class WaySpan(NamedTuple):
    """From this m on, to the next span."""

    start: int
    way: int


class MeasuredWeight(NamedTuple):
    """The shapes of one matrix of weights, by m, and the times of some ways for them."""

    shapes: Sequence[GemmShape]
    ways: Sequence[str]
    times: Matrix
    """Shapes x ways, in any unit; NaN where there is none. Every shape has one."""


def fastest_spans(weight: MeasuredWeight) -> list[WaySpan]:
    """For every m from 1; what begins anew has another way than what comes before it."""
    measured = [shape.m for shape in weight.shapes]
    ends = sorted({*measured, *(m for m in _steps() if measured[0] < m < measured[-1])})
    models = [_model(weight, m) for m in measured]
    residuals = np.log(weight.times) - np.array(models)
    spans = [WaySpan(1, _fastest(weight, measured, residuals, ends[0]))]
    for before, end in pairwise(ends):
        way = _fastest(weight, measured, residuals, end)
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


def _fastest(weight: MeasuredWeight, measured: Sequence[int], residuals: Matrix, m: int) -> int:
    if m in measured:
        return int(np.nanargmin(weight.times[measured.index(m)]))
    above = next(at for at, known in enumerate(measured) if known > m)
    share = log(m / measured[above - 1]) / log(measured[above] / measured[above - 1])
    low, high = residuals[above - 1], residuals[above]
    between = (1 - share) * low + share * high
    between = np.where(np.isnan(low), high + ONE_SIDED * (1 - share), between)
    between = np.where(np.isnan(high), low + ONE_SIDED * share, between)
    return int(np.nanargmin(_model(weight, m) + between))


def _model(weight: MeasuredWeight, m: int) -> Matrix:
    """Logarithms of the model's times."""
    first = weight.shapes[0]
    shape = GemmShape("", m, first.n, first.k, first.dtype, first.groups)
    known = [_kernel(way) for way in weight.ways]
    return np.array([log(way_seconds(*one, shape)) if one else 0.0 for one in known])


@lru_cache(maxsize=4096)
def _kernel(way: str) -> tuple[AnyPoint, RunOption] | None:
    """What a way's name stands for, if the model knows it."""
    name = way.partition(":")[2]
    compiled = compiled_name(name)
    point = point_named(compiled)
    option = option_named(point, name[len(compiled) + 1 :]) if point else None
    return (point, option) if point and option else None
