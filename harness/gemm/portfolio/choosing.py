"""A choice of few kernels, told: which they are, what they reach, and what the same rule reaches on shapes held out."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.portfolio.between import with_shapes_between
from hillclimb.harness.gemm.portfolio.dispatch import Dispatch, dispatch, reached
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio
from hillclimb.harness.gemm.portfolio.selection import Matrix, Selection, Selector
from hillclimb.harness.records.record import Record


@dataclass(frozen=True)
class Wish:
    """What is asked of the chosen kernels. Without a threshold or a count: the fewest at 98 %."""

    threshold: float | None = None
    """Every shape has a kernel of this efficiency, by as few as possible."""
    count: int | None = None
    """So many kernels, the best in the mean."""
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    is_noisy: bool = True
    """An efficiency within its noise of the threshold counts as there."""
    seconds: float = 60.0


class PartReached(Record):
    """Over some shapes, by other times than those that chose, where the files have such."""

    shapes: int
    untimed: int = 0
    """Of these: held out, and without a time of the way that the dispatch gives them. They count in nothing below."""
    mean: float
    """Of the efficiencies of the kernels that the dispatch gives them; weighted where calls are."""
    worst: float
    worst_shape: str


class CurvePoint(Record):
    """What the best set of so many kernels reaches."""

    kernels: int
    mean: float
    worst: float


class Choice(Record):
    """Everything about one choice, as JSON."""

    kernels: tuple[str, ...]
    """What has to be compiled; `dispatch` says how each is run."""
    on_shapes: PartReached
    """That it was chosen for."""
    held_out: PartReached | None = None
    """That were left out of the choice and of the table."""
    gap: float = 0.0
    """By how much another choice could be better in the mean, at most: above 0 where the time did not suffice."""
    curve: tuple[CurvePoint, ...] = ()
    dispatch: Dispatch


def choose_kernels(
    portfolio: Portfolio,
    wish: Wish,
    weights: Matrix | None = None,
    held_out_m: Collection[int] = (),
    most: int = 0,
) -> Choice:
    """Raises UsageError for a wish that cannot be met, or where nothing is left to choose for or to hold out.

    `most` above 0: the curve of up to so many kernels, too.
    """
    is_out = [shape.m in held_out_m for shape in portfolio.shapes]
    if held_out_m and (all(is_out) or not any(is_out)):
        known = sorted({shape.m for shape in portfolio.shapes})
        raise UsageError(f"held-out m {sorted(held_out_m)} leaves no shapes on one side; there are {known}")
    inside = portfolio.rows(not out for out in is_out)
    inside_weights = None if weights is None else weights[~np.array(is_out)]
    selection = _select(inside, wish, inside_weights)
    table = dispatch(inside, selection)
    outside = portfolio.rows(is_out) if any(is_out) else None
    outside_weights = None if weights is None else weights[np.array(is_out)]
    return Choice(
        kernels=tuple(inside.kernels[kernel] for kernel in selection.kernels),
        on_shapes=_reached(table, inside, inside_weights),
        held_out=_reached(table, outside, outside_weights, may_lack=True) if outside else None,
        gap=selection.gap,
        curve=_curve(inside, wish, inside_weights, most),
        dispatch=table,
    )


def matching(patterns: Sequence[str], kernels: Sequence[str]) -> tuple[str, ...]:
    """The kernels that these names, or patterns with * in them, stand for. Raises UsageError for one without any."""
    found: dict[str, None] = {}
    for pattern in patterns:
        expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        names = [kernel for kernel in kernels if expression.fullmatch(kernel)]
        if not names:
            raise UsageError(f"no kernel is named {pattern!r}; one of {len(kernels)} is {kernels[0]!r}")
        found |= dict.fromkeys(names)
    return tuple(found)


def _select(portfolio: Portfolio, wish: Wish, weights: Matrix | None) -> Selection:
    if wish.count is not None:
        return _selector(portfolio, wish, weights).best(wish.count)
    selector = portfolio.selector(weights, wish.required, wish.forbidden, wish.seconds)
    threshold = 0.98 if wish.threshold is None else wish.threshold
    return selector.cover(threshold, portfolio.noise if wish.is_noisy else 0.0)


def _selector(portfolio: Portfolio, wish: Wish, weights: Matrix | None) -> Selector:
    """For the best of so many kernels: shapes between those measured count like them, unless calls are told."""
    own = portfolio if weights is not None else with_shapes_between(portfolio)
    allowed = [kernel for kernel, name in enumerate(own.kernels) if name not in wish.forbidden]
    measured = len(portfolio.shapes)
    is_wanted = [at < measured or bool(row[allowed].any()) for at, row in enumerate(own.efficiency)]
    return own.rows(is_wanted).selector(weights, wish.required, wish.forbidden, wish.seconds)


def _curve(portfolio: Portfolio, wish: Wish, weights: Matrix | None, most: int) -> tuple[CurvePoint, ...]:
    if not most:
        return ()
    points = []
    for one in _selector(portfolio, wish, weights).curve(most):
        shares = portfolio.reached(one.kernels)
        mean = float(np.average(shares, weights=weights))
        points.append(CurvePoint(kernels=len(one.kernels), mean=mean, worst=float(shares.min())))
    return tuple(points)


def _reached(
    table: Dispatch, portfolio: Portfolio, weights: Matrix | None, *, may_lack: bool = False
) -> PartReached:
    shares = reached(table, portfolio)
    untimed = shares.count(0) if may_lack else 0
    told = [at for at, share in enumerate(shares) if share or not untimed] or list(range(len(shares)))
    worst = min(told, key=shares.__getitem__)
    own_weights = None if weights is None else weights[told]
    return PartReached(
        shapes=len(shares),
        untimed=untimed,
        mean=float(np.average([shares[at] for at in told], weights=own_weights)),
        worst=shares[worst],
        worst_shape=portfolio.shapes[worst].name,
    )
