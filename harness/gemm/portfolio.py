"""Times of many kernels for many shapes, and the few kernels that are chosen of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.results import ProviderResults
from hillclimb.harness.gemm.selection import Matrix, Selector, efficiencies
from hillclimb.harness.gemm.shape import GemmShape
from hillclimb.harness.wording import suggestion


@dataclass(frozen=True)
class Portfolio:
    """A row for each shape, a column for each kernel."""

    shapes: tuple[GemmShape, ...]
    """With their names."""
    kernels: tuple[str, ...]
    """provider:kernel, or the provider alone where its kernels have no names."""
    milliseconds: Matrix
    """NaN where there is no time."""
    spread: Matrix
    """Half of each time's 95 % interval, as a share of the time; 0 where there is none."""

    @cached_property
    def efficiency(self) -> Matrix:
        """Share of the speed of the best kernel of the shape, 0 to 1."""
        return efficiencies(self.milliseconds)

    @cached_property
    def noise(self) -> Matrix:
        """What an efficiency may be off by: its own time's spread and the best one's."""
        best = np.nanargmin(self.milliseconds, axis=1)
        of_best = self.spread[np.arange(len(best)), best][:, None]
        noise: Matrix = self.efficiency * (np.nan_to_num(self.spread) + of_best)
        noise[self.efficiency >= 1] = 0
        return noise

    def rows(self, is_wanted: Iterable[bool]) -> Portfolio:
        """Some of the shapes."""
        at = np.flatnonzero(list(is_wanted))
        shapes = tuple(self.shapes[row] for row in at)
        return Portfolio(shapes, self.kernels, self.milliseconds[at], self.spread[at])

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
    times: dict[tuple[GemmShape, str], tuple[float, float]] = {}
    names: dict[GemmShape, str] = {}
    for file in files:
        for one in file.possible():
            kernel = f"{file.provider}:{one.kernel}" if one.kernel else file.provider
            low, high = one.interval_ms
            found = one.runtime_ms, (high - low) / 2 / one.runtime_ms
            names.setdefault(one.shape, one.name)
            times[one.shape, kernel] = min(found, times.get((one.shape, kernel), found))
    if not times:
        raise UsageError("the files hold no times; measure kernels first")
    kernels = tuple(dict.fromkeys(kernel for _, kernel in times))
    milliseconds = np.full((len(names), len(kernels)), np.nan)
    spread = np.zeros_like(milliseconds)
    rows, columns = ({key: at for at, key in enumerate(keys)} for keys in (names, kernels))
    for (shape, kernel), (time, half) in times.items():
        milliseconds[rows[shape], columns[kernel]] = time
        spread[rows[shape], columns[kernel]] = half
    shapes = tuple(shape.named(name) for shape, name in names.items())
    return Portfolio(shapes, kernels, milliseconds, spread)


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
