"""Times of many kernels for many shapes, of which few are to be chosen.

A generated kernel is compiled once and may be run in several ways: with other clusters, or another order of tiles. Ways
cost nothing to have, so kernels are chosen, each with all of its ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.families.run_option import compiled_name
from hillclimb.harness.gemm.portfolio.learned import LearnedTimes
from hillclimb.harness.gemm.portfolio.selection import Matrix, Selector, efficiencies
from hillclimb.harness.gemm.results import GENERATED, ProviderResults
from hillclimb.harness.gemm.shape import GemmShape
from hillclimb.harness.wording import suggestion


@dataclass(frozen=True)
class Portfolio:
    """A row for each shape, a column for each kernel in each of its ways."""

    shapes: tuple[GemmShape, ...]
    """With their names."""
    ways: tuple[str, ...]
    """provider:kernel as it was timed, or the provider alone where its kernels have no names."""
    milliseconds: Matrix
    """Shapes x ways; NaN where there is no time."""
    spread: Matrix
    """Half of each time's 95 % interval, as a share of the time; 0 where there is none."""
    choosing: Matrix | None = None
    """Times by which the best is chosen, where other rounds than those of `milliseconds` gave them."""

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """Those that are compiled, in the order of their first ways."""
        return tuple(dict.fromkeys(map(_compiled, self.ways)))

    @cached_property
    def ways_of(self) -> list[list[int]]:
        """Of each kernel, the columns of its ways."""
        compiled = [_compiled(way) for way in self.ways]
        return [[at for at, one in enumerate(compiled) if one == kernel] for kernel in self.kernels]

    @property
    def ranked(self) -> Matrix:
        """Shapes x ways: the times that choose."""
        return self.milliseconds if self.choosing is None else self.choosing

    @cached_property
    def expected(self) -> LearnedTimes:
        """What the times that choose say of other sizes. Raises UsageError where scikit-learn is missing for it."""
        return LearnedTimes(self.shapes, self.ways, self.ranked)

    @cached_property
    def way_efficiency(self) -> Matrix:
        """Shapes x ways: the share of the speed of the best way of the shape, 0 to 1, by the choosing times."""
        return efficiencies(self.ranked)

    @cached_property
    def told(self) -> Matrix:
        """As `way_efficiency`, by `milliseconds`: may be above 1 where other times chose the best."""
        best = self.way_efficiency.argmax(axis=1)
        shares: Matrix = self.milliseconds[np.arange(len(best)), best][:, None] / self.milliseconds
        return np.nan_to_num(shares)

    @cached_property
    def efficiency(self) -> Matrix:
        """Shapes x kernels: of the best way of each."""
        return self._of_kernels(self.way_efficiency)

    @cached_property
    def kernel_milliseconds(self) -> Matrix:
        """Shapes x kernels: the time of the best way of each; NaN where there is none."""
        return self._of_kernels(self.milliseconds)

    @cached_property
    def noise(self) -> Matrix:
        """Shapes x kernels: what an efficiency may be off by: the spreads of its own time and of the best one."""
        best = self.way_efficiency.argmax(axis=1)
        of_best = self.spread[np.arange(len(best)), best][:, None]
        noise: Matrix = self.efficiency * (np.nan_to_num(self._of_kernels(self.spread)) + of_best)
        noise[self.efficiency >= 1] = 0
        return noise

    def reached(self, kernels: Sequence[int]) -> NDArray[np.float64]:
        """Of each shape, the efficiency of the best way of these kernels, by times that did not choose it."""
        ways = sorted(way for kernel in kernels for way in self.ways_of[kernel])
        best = self.way_efficiency[:, ways].argmax(axis=1)
        shares: NDArray[np.float64] = self.told[:, ways][np.arange(len(best)), best]
        return shares

    def best_ways(self, kernels: Sequence[int]) -> list[int]:
        """Of these kernels, the ways that are the best for some shape, and of any other kernel its best in the mean."""
        ways = sorted(way for kernel in kernels for way in self.ways_of[kernel])
        shares = self.way_efficiency[:, ways]
        best = {ways[at] for at, row in zip(shares.argmax(axis=1), shares, strict=True) if row.any()}
        means = self.way_efficiency.mean(axis=0)
        idle = [self.ways_of[kernel] for kernel in kernels if best.isdisjoint(self.ways_of[kernel])]
        return sorted(best | {max(own, key=means.__getitem__) for own in idle})

    def rows(self, is_wanted: Iterable[bool]) -> Portfolio:
        """Some of the shapes."""
        at = np.flatnonzero(list(is_wanted))
        shapes = tuple(self.shapes[row] for row in at)
        choosing = None if self.choosing is None else self.choosing[at]
        return Portfolio(shapes, self.ways, self.milliseconds[at], self.spread[at], choosing)

    def _of_kernels(self, values: Matrix) -> Matrix:
        """Of shapes x ways, those of the best way of each kernel."""
        shares, every = self.way_efficiency, np.arange(len(self.shapes))
        best = [np.array(ways)[shares[:, ways].argmax(axis=1)] for ways in self.ways_of]
        return np.stack([values[every, way] for way in best], axis=1)

    def column(self, kernel: str) -> int:
        """Raises UsageError for a kernel that is not there."""
        if kernel not in self.kernels:
            raise UsageError(f"no kernel {kernel!r}: {suggestion(kernel, self.kernels)}")
        return self.kernels.index(kernel)

    def selector(
        self,
        weights: Matrix | None = None,
        required: Sequence[str] = (),
        forbidden: Sequence[str] = (),
        seconds: float = 60.0,
    ) -> Selector:
        """Raises UsageError for kernels that are not there, and for shapes that none runs."""
        return Selector(
            self.efficiency,
            [shape.name for shape in self.shapes],
            weights,
            frozenset(map(self.column, required)),
            frozenset(map(self.column, forbidden)),
            seconds,
        )

    def called(self, calls: Mapping[str, float]) -> tuple[Portfolio, Matrix]:
        """The shapes that are called at all, by name, and how often.

        Raises UsageError for a shape that is not there, and where none is called.
        """
        names = [shape.name for shape in self.shapes]
        for name, number in calls.items():
            if name not in names:
                raise UsageError(f"no shape {name!r}: {suggestion(name, names)}")
            if not 0 <= number < np.inf:
                raise UsageError(f"{name} is called {number} times; give a number of 0 or more")
        weights = np.array([calls.get(name, 0.0) for name in names])
        if not weights.any():
            raise UsageError("no shape is called at all; give one a number above 0")
        return self.rows(weights > 0), weights[weights > 0]


def gather(files: Sequence[ProviderResults]) -> Portfolio:
    """All kernels of these files, and every shape that any of them has a possible time for.

    Raises UsageError where they are of unlike surroundings, or hold no time at all.
    """
    _expect_alike(files)
    times: dict[tuple[GemmShape, str], tuple[float, float, float]] = {}
    names: dict[GemmShape, str] = {}
    for file in files:
        for one in file.possible():
            way = f"{file.provider}:{one.kernel}" if one.kernel else file.provider
            low, high = one.interval_ms
            found = one.rank_ms, one.runtime_ms, (high - low) / 2 / one.runtime_ms
            names.setdefault(one.shape, one.name)
            times[one.shape, way] = min(found, times.get((one.shape, way), found))
    if not times:
        raise UsageError("the files hold no times; measure kernels first")
    ways = tuple(dict.fromkeys(way for _, way in times))
    choosing, milliseconds = (np.full((len(names), len(ways)), np.nan) for _ in range(2))
    spread = np.zeros_like(milliseconds)
    rows, columns = ({key: at for at, key in enumerate(keys)} for keys in (names, ways))
    for (shape, way), found in times.items():
        for matrix, value in zip((choosing, milliseconds, spread), found, strict=True):
            matrix[rows[shape], columns[way]] = value
    shapes = tuple(shape.named(name) for shape, name in names.items())
    return Portfolio(shapes, ways, milliseconds, spread, choosing)


def _compiled(way: str) -> str:
    provider, _, kernel = way.partition(":")
    return f"{provider}:{compiled_name(kernel)}" if provider == GENERATED and kernel else way


def _expect_alike(files: Sequence[ProviderResults]) -> None:
    """Times of two cards, or of a cold cache and a hot one, say nothing of each other."""
    first, *others = files
    for other in others:
        for what, wanted, found in (
            ("GPU", first.gpu.name, other.gpu.name),
            ("cache", first.cache, other.cache),
        ):
            if wanted != found:
                problem = f"{what} of {other.provider} is {found}, of {first.provider} it is {wanted}"
                raise UsageError(f"{problem}; give files that were measured alike")
