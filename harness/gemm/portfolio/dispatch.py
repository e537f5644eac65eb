"""Which chosen kernel runs a product, and how: as measured, or as is expected between what was measured.

A matrix of weights has a span of m for each way to run a kernel: a measured m has its fastest, and any other what is
predicted (`prediction`). Weights that were not measured get the spans of the nearest that were, over the logarithms of
n, k and the number of groups. Single products are near single ones alone, and those of groups near those of groups.
Where a dtype has no weights of the kind, it gets the fall-back: the way whose worst shape is best, and of several the
one that is best in the mean.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio
from hillclimb.harness.gemm.portfolio.prediction import MeasuredWeight, fastest_spans
from hillclimb.harness.gemm.portfolio.selection import Selection
from hillclimb.harness.gemm.shape import Dtype, GemmShape
from hillclimb.harness.records.record import Record


class KnownWeight(Record):
    """One matrix of weights, and which kernel runs it from which m on."""

    n: PositiveInt
    k: PositiveInt
    groups: PositiveInt
    dtype: Dtype
    starts: tuple[PositiveInt, ...]
    """Ascending, from 1."""
    chosen: tuple[NonNegativeInt, ...]
    """Of each span, the index of its kernel."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.starts[:1] != (1,) or any(one >= two for one, two in pairwise(self.starts)):
            raise ValueError("starts does not ascend from 1")
        if len(self.starts) != len(self.chosen):
            raise ValueError("starts has not one kernel for each span")
        return self

    def distance(self, shape: GemmShape) -> float:
        """In doublings, over n, k and groups."""
        sizes = ((self.n, shape.n), (self.k, shape.k), (self.groups, shape.groups))
        return math.dist([math.log2(own) for own, _ in sizes], [math.log2(other) for _, other in sizes])


class Dispatch(Record):
    """The table, as a JSON file."""

    schema_version: Literal[2] = Field(2, alias="schema")
    kernels: tuple[str, ...]
    """As they were timed: a generated one with the way to run it, so a compiled kernel may be there several times."""
    fall_back: int
    """Index of the kernel for what nothing is known of."""
    known: tuple[KnownWeight, ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not 0 <= self.fall_back < len(self.kernels):
            raise ValueError(f"fall_back {self.fall_back} is none of the {len(self.kernels)} kernels")
        if any(chosen >= len(self.kernels) for one in self.known for chosen in one.chosen):
            raise ValueError(f"a span's kernel is none of the {len(self.kernels)}")
        return self

    def choose(self, shape: GemmShape) -> str:
        """The kernel's name."""
        return self.kernels[self.index(shape)]

    def index(self, shape: GemmShape) -> int:
        """Of the first of equally near weights."""
        kind = (shape.dtype, shape.groups > 1)
        same = [one for one in self.known if (one.dtype, one.groups > 1) == kind]
        if not same:
            return self.fall_back
        nearest = min(same, key=lambda one: one.distance(shape))
        return nearest.chosen[bisect_right(nearest.starts, max(shape.m, 1)) - 1]


def dispatch(portfolio: Portfolio, selection: Selection) -> Dispatch:
    """Over the weights of every shape that one of the chosen kernels runs, in all of the kernels' ways."""
    own = sorted(way for kernel in selection.kernels for way in portfolio.ways_of[kernel])
    spans = {weight.shapes[0]: fastest_spans(weight) for weight in measured_weights(portfolio, own)}
    used = {own[span.way] for found in spans.values() for span in found}
    ways = sorted(used | {*portfolio.best_ways(selection.kernels)})
    chosen = portfolio.way_efficiency[:, ways]
    known = [
        KnownWeight(
            n=shape.n,
            k=shape.k,
            groups=shape.groups,
            dtype=shape.dtype,
            starts=tuple(span.start for span in found),
            chosen=tuple(ways.index(own[span.way]) for span in found),
        )
        for shape, found in spans.items()
    ]
    return Dispatch(
        schema=2,
        kernels=tuple(portfolio.ways[way] for way in ways),
        fall_back=max(range(len(ways)), key=lambda at: (chosen[:, at].min(), chosen[:, at].mean())),
        known=tuple(known),
    )


def measured_weights(portfolio: Portfolio, ways: Sequence[int]) -> list[MeasuredWeight]:
    """Of these ways, with the shapes that one of them has a time for."""
    times = portfolio.ranked[:, ways]
    rows = [at for at, row in enumerate(times) if not np.isnan(row).all()]
    rows.sort(key=lambda at: (*_weight_of(portfolio.shapes[at]), portfolio.shapes[at].m))
    names = [portfolio.ways[way] for way in ways]
    found = []
    for _, group in groupby(rows, key=lambda at: _weight_of(portfolio.shapes[at])):
        of_weight = list(group)
        shapes = [portfolio.shapes[at] for at in of_weight]
        found.append(MeasuredWeight(shapes, names, times[of_weight], portfolio.expected))
    return found


def _weight_of(shape: GemmShape) -> tuple[str, int, int, int]:
    return shape.dtype, shape.groups, shape.n, shape.k


def reached(table: Dispatch, portfolio: Portfolio) -> list[float]:
    """Of every shape, the efficiency of what the table gives it, by times that chose nothing; 0 where there is none."""
    columns = [portfolio.ways.index(way) for way in table.kernels]
    return [
        float(row[columns[table.index(shape)]])
        for shape, row in zip(portfolio.shapes, portfolio.told, strict=True)
    ]


def read_dispatch(path: Path) -> Dispatch | None:
    """What `gemm select --output` wrote; None for a file of something else.

    Raises UsageError for one that is spoilt.
    """
    try:
        return Dispatch.model_validate_json(path.read_bytes())
    except OSError:
        return None
    except ValidationError as error:
        slip = error.errors()[0]
        is_other = any(one["loc"] == ("known",) for one in error.errors())
        if is_other or slip["type"] == "json_invalid":
            return None
        place = ".".join(map(str, slip["loc"])) or "the file"
        raise UsageError(
            f"{path}: {place}: {slip['msg'].removeprefix('Value error, ')}; select it anew"
        ) from None
