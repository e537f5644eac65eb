"""Providers beside a baseline: TFLOP/s and speedups by shape, and what keeps two times from being compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Literal

from hillclimb.harness.gemm.results import Failed, Measured, ProviderResults
from hillclimb.harness.gemm.shape import GemmShape
from hillclimb.harness.records.record import Record

Standing = Literal["faster", "slower", "level"]

GapKind = Literal["missing", "failed", "stale", "unlike", "impossible"]
"""missing: no time and no failure. stale: another card, driver or toolkit than the baseline's. unlike: a mean beside a
minimum, or a cold cache beside a hot one."""

BEST = "best of all"
"""Of all providers, the baseline among them: by the rounds that choose, where the files have such, told by others."""

BANDS = (64, 1024)
"""Largest m of the first two of three bands: decoding, what is between, and prefill."""

SAME_EVERYWHERE = ("cuda",)
"""Software that must be the same in two files that have it: the kernels of all providers run on it."""


class Cell(Record):
    """One provider's best kernel for one shape."""

    kernel: str
    runtime_ms: float
    tflops: float
    is_checked: bool
    speedup: float
    """The baseline's time over this one's."""
    low: float
    high: float
    """From the ends of both intervals: at least as wide as a 95 % interval of the speedup."""
    verdict: Standing
    """faster or slower where all of the interval is above or below 1."""


class ComparedShape(Record):
    """One row."""

    name: str
    m: int
    n: int
    k: int
    dtype: str
    groups: int
    cells: dict[str, Cell]
    """By provider, the baseline among them; without those that have no time to compare."""
    best: str = ""
    """The provider that is fastest, chosen by other rounds than its time is told of; empty where there is none."""

    def speedup(self, provider: str) -> float | None:
        """Over the baseline, of a provider or of BEST; None where there is no time."""
        cell = self.cells.get(self.best if provider == BEST else provider)
        return cell.speedup if cell else None


class SpeedupSummary(Record):
    """Speedups over the baseline of all shapes, or of those with some m, by provider and BEST."""

    least_m: int
    most_m: int | None
    """None: no end."""
    shapes: int
    """That the baseline has a time for."""
    geometric_means: dict[str, float]
    smallest: dict[str, float]


class Gap(Record):
    """Why a cell is empty, or a whole file is not compared."""

    provider: str
    kind: GapKind
    shape: str = ""
    """Empty: all of the provider's."""
    detail: str = ""


class ProviderComparison(Record):
    """All rows, and what is missing in them."""

    baseline: str
    providers: tuple[str, ...]
    """The baseline first."""
    shapes: tuple[ComparedShape, ...]
    summary: SpeedupSummary
    """Of all shapes."""
    bands: tuple[SpeedupSummary, ...]
    """Of the shapes with few, more and many rows, where there are any."""
    gaps: tuple[Gap, ...]

    def slower(self) -> list[tuple[str, str]]:
        """Provider and shape wherever the baseline is proven to be faster."""
        return [
            (provider, row.name)
            for row in self.shapes
            for provider, cell in row.cells.items()
            if cell.verdict == "slower"
        ]


def compare(baseline: ProviderResults, others: Sequence[ProviderResults]) -> ProviderComparison:
    """Every shape that any of them was tried on."""
    gaps: list[Gap] = []
    compared = [baseline]
    for other in others:
        stale = list(_stale(baseline, other))
        gaps += stale
        compared += [] if stale else [other]
    names = _names([baseline, *others])
    best = {file.provider: file.best() for file in compared}
    rows = []
    for shape, name in names.items():
        base = best[baseline.provider].get(shape)
        cells, ranks = {}, {}
        for file in compared:
            own = best[file.provider].get(shape)
            if own is None:
                gaps.append(_absent(file, shape, name))
            elif base is not None and (unlike := _unlike(base, own)):
                gaps.append(Gap(provider=file.provider, kind="unlike", shape=name, detail=unlike))
            elif base is not None:
                cells[file.provider], ranks[file.provider] = _cell(base, own), own.rank_ms
        rows.append(_row(name, shape, cells, min(ranks, key=lambda name: ranks[name], default="")))
    gaps += [gap for file in compared for gap in _impossible(file)]
    providers = (baseline.provider, *(other.provider for other in others))
    return ProviderComparison(
        baseline=baseline.provider,
        providers=providers,
        shapes=tuple(rows),
        summary=_summary(rows, providers, 1, None),
        bands=tuple(band for ends in _bands() if (band := _summary(rows, providers, *ends)).shapes),
        gaps=tuple(gaps),
    )


def _cell(base: Measured, own: Measured) -> Cell:
    low, high = own.interval_ms
    base_low, base_high = base.interval_ms
    is_itself = own is base
    ends = (1.0, 1.0) if is_itself else (base_low / high, base_high / low)
    return Cell(
        kernel=own.kernel,
        runtime_ms=own.runtime_ms,
        tflops=own.achieved_tflops,
        is_checked=own.is_checked,
        speedup=base.runtime_ms / own.runtime_ms,
        low=ends[0],
        high=ends[1],
        verdict="faster" if ends[0] > 1 else "slower" if ends[1] < 1 else "level",
    )


def _stale(baseline: ProviderResults, other: ProviderResults) -> Iterator[Gap]:
    """What of a file's surroundings is not the baseline's."""
    pairs = {"GPU": (baseline.gpu.name, other.gpu.name), "driver": (baseline.gpu.driver, other.gpu.driver)}
    pairs |= {
        name: (baseline.software.get(name, ""), other.software.get(name, "")) for name in SAME_EVERYWHERE
    }
    pairs["cache"] = baseline.cache, other.cache
    for what, (wanted, found) in pairs.items():
        if wanted != found:
            kind: GapKind = "unlike" if what == "cache" else "stale"
            seen, expected = found or "not given", wanted or "not given"
            detail = f"{what} is {seen}, the baseline's {expected}; measure one of them again"
            yield Gap(provider=other.provider, kind=kind, detail=detail)


def _unlike(base: Measured, own: Measured) -> str:
    if base.statistic == own.statistic:
        return ""
    return f"its time is a {own.statistic}, the baseline's a {base.statistic}; a {own.statistic} says another thing"


def _absent(file: ProviderResults, shape: GemmShape, name: str) -> Gap:
    """Why a provider has no time for a shape."""
    failures = [one for one in file.failed if one.shape == shape]
    if failures:
        return Gap(provider=file.provider, kind="failed", shape=name, detail=_told(failures))
    return Gap(provider=file.provider, kind="missing", shape=name, detail="no record; measure it")


def _told(failures: Sequence[Failed]) -> str:
    one = failures[-1]
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    return " ".join(part for part in (one.kernel, one.status, one.reason) if part) + more


def _impossible(file: ProviderResults) -> Iterator[Gap]:
    for one in file.results:
        if why := file.beyond_card(one):
            detail = f"{one.kernel} {why}"
            yield Gap(provider=file.provider, kind="impossible", shape=one.name, detail=detail)


def _names(files: Sequence[ProviderResults]) -> dict[GemmShape, str]:
    """Every shape that was tried, named as the first file that has it."""
    tried = [one for file in files for one in (*file.results, *file.failed)]
    names: dict[GemmShape, str] = {}
    for one in tried:
        names.setdefault(one.shape, one.name)
    return names


def _row(name: str, shape: GemmShape, cells: dict[str, Cell], best: str) -> ComparedShape:
    m, n, k = shape.m, shape.n, shape.k
    return ComparedShape(
        name=name, m=m, n=n, k=k, dtype=shape.dtype, groups=shape.groups, cells=cells, best=best
    )


def _bands() -> Iterator[tuple[int, int | None]]:
    """Least and largest m of each."""
    least = 1
    for most in BANDS:
        yield least, most
        least = most + 1
    yield least, None


def _summary(
    rows: Sequence[ComparedShape], providers: Sequence[str], least_m: int, most_m: int | None
) -> SpeedupSummary:
    timed = [row for row in rows if row.cells]
    within = [row for row in timed if least_m <= row.m and (most_m is None or row.m <= most_m)]
    found = {
        name: [speedup for row in within if (speedup := row.speedup(name))] for name in (*providers, BEST)
    }
    found = {name: speedups for name, speedups in found.items() if speedups}
    return SpeedupSummary(
        least_m=least_m,
        most_m=most_m,
        shapes=len(within),
        geometric_means={name: statistics.geometric_mean(speedups) for name, speedups in found.items()},
        smallest={name: min(speedups) for name, speedups in found.items()},
    )
