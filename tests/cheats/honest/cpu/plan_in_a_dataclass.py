"""Keeps a frozen plan for each shape, with slices and counts of it alone.

family: cached-result
entries: [13]
case: softmax
"""

import functools
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Plan:
    rows: int
    columns: int
    step: int = 16
    bands: tuple[slice, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, rows: int, columns: int) -> "Plan":
        bands = tuple(slice(at, min(at + cls.step, rows)) for at in range(0, rows, cls.step))
        return cls(rows, columns, bands=bands)


@functools.lru_cache(maxsize=32)
def plan(rows, columns):
    return Plan.of(rows, columns)


def run(x, y):
    for band in plan(*x.shape).bands:
        part = y[band]
        np.exp(x[band] - x[band].max(1, keepdims=True), out=part)
        part /= part.sum(1, keepdims=True)
