"""A choice of few kernels, told: which they are, what they reach, and what the same rule reaches on shapes held out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.portfolio.between import with_shapes_between
from hillclimb.harness.gemm.portfolio.dispatch import Dispatch, dispatch, reached
from hillclimb.harness.gemm.portfolio.learned import LEAST_TIMES
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio
from hillclimb.harness.gemm.portfolio.selection import Matrix, Selection, Selector
from hillclimb.harness.records.record import Record
from hillclimb.harness.wording import count


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
    """Of these: held out, and without a time of the way that the dispatch gives them, for whatever reason. They count
    in nothing below; where all lack one, mean and worst are 0."""
    mean: float
    """Of the efficiencies of the kernels that the dispatch gives them; weighted where calls are."""
    worst: float
    worst_shape: str


class CurvePoint(Record):
    """What the best set of so many kernels reaches on the shapes that were measured."""

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
    """By how much another choice could be better in the mean that was sought, at most: above 0 where the time did not
    suffice. Shapes between the measured ones are in that mean, where they count."""
    curve: tuple[CurvePoint, ...] = ()
    dispatch: Dispatch


def choose_kernels(
    portfolio: Portfolio,
    wish: Wish,
    weights: Matrix | None = None,
    held_out_m: Collection[int] = (),
    most: int = 0,
    show: Callable[[str], None] | None = None,
) -> Choice:
    """So many kernels, the best in the mean, serve shapes between the measured ones, too, unless weights are given.

    `most` above 0: the curve of up to so many kernels, too. `show` is told what begins, if there is one.
    Raises UsageError for a wish that cannot be met, or where nothing is left to choose for or to hold out.
    """
    is_out = [shape.m in held_out_m for shape in portfolio.shapes]
    if held_out_m and (all(is_out) or not any(is_out)):
        known = sorted({shape.m for shape in portfolio.shapes})
        raise UsageError(f"held-out m {sorted(held_out_m)} leaves no shapes on one side; there are {known}")
    inside = portfolio.rows(not out for out in is_out)
    inside_weights = None if weights is None else weights[~np.array(is_out)]
    counts_between = weights is None and bool(wish.count or most)
    tell = show or (lambda stage: None)
    times = int((~np.isnan(inside.ranked)).sum())
    if counts_between and times >= LEAST_TIMES:
        tell(f"learning from {times} times")
    few = _selector(with_shapes_between(inside) if counts_between else inside, wish, inside_weights)
    tell(f"choosing of {count(len(inside.kernels), 'kernel')} for {count(len(inside.shapes), 'shape')}")
    selection = few.best(wish.count) if wish.count is not None else fewest(inside, wish, inside_weights)
    tell("making the dispatch")
    table = dispatch(inside, selection)
    outside = portfolio.rows(is_out) if any(is_out) else None
    outside_weights = None if weights is None else weights[np.array(is_out)]
    return Choice(
        kernels=tuple(inside.kernels[kernel] for kernel in selection.kernels),
        on_shapes=_reached(table, inside, inside_weights),
        held_out=_reached(table, outside, outside_weights, may_lack=True) if outside else None,
        gap=selection.gap,
        curve=tuple(_curve(inside, few.curve(most), inside_weights)),
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


def fewest(portfolio: Portfolio, wish: Wish, weights: Matrix | None = None) -> Selection:
    """The fewest kernels of an efficiency at every shape. Raises UsageError for a wish that cannot be met."""
    threshold = 0.98 if wish.threshold is None else wish.threshold
    return _selector(portfolio, wish, weights).cover(threshold, portfolio.noise if wish.is_noisy else 0.0)


def _selector(portfolio: Portfolio, wish: Wish, weights: Matrix | None) -> Selector:
    return portfolio.selector(weights, wish.required, wish.forbidden, wish.seconds)


def _curve(
    portfolio: Portfolio, choices: Sequence[Selection], weights: Matrix | None
) -> Iterator[CurvePoint]:
    for one in choices:
        shares = portfolio.reached(one.kernels)
        mean = float(np.average(shares, weights=weights))
        yield CurvePoint(kernels=len(one.kernels), mean=mean, worst=float(shares.min()))


def _reached(
    table: Dispatch, portfolio: Portfolio, weights: Matrix | None, *, may_lack: bool = False
) -> PartReached:
    shares = reached(table, portfolio)
    timed = [at for at, share in enumerate(shares) if share]
    told = timed if may_lack and timed else list(range(len(shares)))
    worst = min(told, key=shares.__getitem__)
    own_weights = None if weights is None else weights[told]
    return PartReached(
        shapes=len(shares),
        untimed=len(shares) - len(timed) if may_lack else 0,
        mean=float(np.average([shares[at] for at in told], weights=own_weights)),
        worst=shares[worst],
        worst_shape=portfolio.shapes[worst].name,
    )
