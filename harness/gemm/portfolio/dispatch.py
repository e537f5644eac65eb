"""Which chosen kernel runs a product, and how: as measured, or as its neighbours among the measured shapes say.

A shape that was measured gets its fastest way to run a chosen kernel. Any other gets the way that is best in the mean
over the nearest measured shapes of its dtype, weighted by the inverse square of their distance (Shepard, ACM National
Conference 1968). A distance is taken over the logarithms of m, n, k and the number of groups. A dtype that was never
measured gets the fall-back, the way whose worst shape is best, and of several the one that is best in the mean.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio
from hillclimb.harness.gemm.portfolio.selection import Selection
from hillclimb.harness.gemm.shape import Dtype, GemmShape
from hillclimb.harness.records.record import Record

NEAREST = 4
"""Measured shapes that are asked about one that was not."""

Share = Annotated[float, Field(ge=0, le=1)]


class KnownShape(Record):
    """One measured shape, and the chosen kernels' efficiencies for it."""

    m: int
    n: int
    k: int
    groups: int
    dtype: Dtype
    efficiency: tuple[Share, ...]
    """In the order of the kernels; 0 where one has no time."""

    def distance(self, shape: GemmShape) -> float:
        """In doublings, over all sizes."""
        sizes = ((self.m, shape.m), (self.n, shape.n), (self.k, shape.k), (self.groups, shape.groups))
        return math.dist([math.log2(own) for own, _ in sizes], [math.log2(other) for _, other in sizes])


class Dispatch(Record):
    """The table, as a JSON file."""

    schema_version: Literal[1] = Field(1, alias="schema")
    kernels: tuple[str, ...]
    """As they were timed: a generated one with the way to run it, so a compiled kernel may be there several times."""
    fall_back: int
    """Index of the kernel for what nothing is known of."""
    known: tuple[KnownShape, ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not 0 <= self.fall_back < len(self.kernels):
            raise ValueError(f"fall_back {self.fall_back} is none of the {len(self.kernels)} kernels")
        if any(len(one.efficiency) != len(self.kernels) for one in self.known):
            raise ValueError("a known shape has not one efficiency for each kernel")
        return self

    def choose(self, shape: GemmShape) -> str:
        """The kernel's name."""
        return self.kernels[self.index(shape)]

    def index(self, shape: GemmShape) -> int:
        """Of the first of equally good ones."""
        same = [(one.distance(shape), at) for at, one in enumerate(self.known) if one.dtype == shape.dtype]
        nearest = sorted(same)[:NEAREST]
        if not nearest:
            return self.fall_back
        if nearest[0][0] == 0:
            nearest = nearest[:1]
        votes = np.zeros(len(self.kernels))
        for distance, at in nearest:
            votes += np.array(self.known[at].efficiency) / max(distance, 1e-9) ** 2
        return int(votes.argmax())


def dispatch(portfolio: Portfolio, selection: Selection) -> Dispatch:
    """Over every shape that one of the chosen kernels runs. Of its ways those that are the best for some shape."""
    ways = portfolio.best_ways(selection.kernels)
    chosen = portfolio.way_efficiency[:, ways]
    known = [
        KnownShape(
            m=shape.m,
            n=shape.n,
            k=shape.k,
            groups=shape.groups,
            dtype=shape.dtype,
            efficiency=tuple(round(float(share), 6) for share in row),
        )
        for shape, row in zip(portfolio.shapes, chosen, strict=True)
        if row.any()
    ]
    return Dispatch(
        schema=1,
        kernels=tuple(portfolio.ways[way] for way in ways),
        fall_back=max(range(len(ways)), key=lambda at: (chosen[:, at].min(), chosen[:, at].mean())),
        known=tuple(known),
    )


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
