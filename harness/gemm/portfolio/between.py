"""Shapes between those that were measured, with the times expected of them: a choice has to serve them, too."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np

from hillclimb.harness.gemm.portfolio.dispatch import measured_weights
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio

APART = 1.5
"""Times a measured m, that the next one of the same weights is at least, for there to be one between."""


def with_shapes_between(portfolio: Portfolio) -> Portfolio:
    """For each two m of the same weights also the one halfway, by their logarithms.

    As it was, where too few times were measured to learn from.
    """
    if not portfolio.expected.is_taught:
        return portfolio
    shapes, rows = [], []
    for weight in measured_weights(portfolio, range(len(portfolio.ways))):
        for low, high in pairwise(weight.measured):
            m = round(sqrt(low * high))
            if high >= APART * low and low < m < high:
                shapes.append(replace(weight.shapes[0], m=m, name=f"{weight.shapes[0].name} at m {m}"))
                rows.append(np.exp(weight.expected_logs(m)))
    times = np.vstack([portfolio.ranked, *rows])
    spread = np.vstack([portfolio.spread, np.zeros((len(rows), len(portfolio.ways)))])
    return Portfolio((*portfolio.shapes, *shapes), portfolio.ways, times, spread)
