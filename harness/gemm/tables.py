"""A comparison as a table for a terminal, or in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hillclimb.harness.gemm.comparison import (
    BEST,
    Cell,
    ComparedShape,
    ProviderComparison,
    SpeedupSummary,
)
from hillclimb.harness.wording import count

MARKS = {"faster": "+", "slower": "-", "level": " "}
"""Behind a speedup: proven to be above 1, below it, or neither."""


def as_text(comparison: ProviderComparison, *, means_only: bool = False) -> str:
    """Columns of equal width, then the means, then what is missing."""
    rows = _rows(comparison, means_only)
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    return "\n".join([*(line.rstrip() for line in lines), *_notes(comparison)])


def as_markdown(comparison: ProviderComparison, *, means_only: bool = False) -> str:
    """The same, as a table of GitHub's."""
    head, *rows = _rows(comparison, means_only)
    rule = ["---", *("---:" for _ in head[1:])]
    lines = ["| " + " | ".join(cell.strip() for cell in row) + " |" for row in (head, rule, *rows)]
    notes = [f"- {note}" for note in _notes(comparison)]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _rows(comparison: ProviderComparison, means_only: bool) -> list[list[str]]:
    """The head, a row for each shape, and geometric means with the smallest speedups."""
    baseline, *others = comparison.providers
    if means_only:
        return [["", *others, BEST], *_means(comparison)]
    head = ["shape", f"{baseline} TFLOP/s"]
    for other in others:
        head += [f"{other} TFLOP/s", "speedup", "95 %"]
    body = [_row(row, comparison.providers) for row in comparison.shapes]
    means = [[label, "", *_spread(cells)] for label, *cells in _means(comparison)]
    return [head, *body, *(means if others else [])]


def _spread(cells: Sequence[str]) -> Iterator[str]:
    """Below the speedups of each provider, that of the best of all left out."""
    for cell in cells[:-1]:
        yield from ("", cell, "")


def _means(comparison: ProviderComparison) -> Iterator[list[str]]:
    """A label, and the speedup over the baseline of each other provider and of the best."""
    names = (*comparison.providers[1:], BEST)
    for one in (comparison.summary, *comparison.bands):
        about = "geometric mean" if one is comparison.summary else _band(one)
        yield [about, *(_times(one.geometric_means.get(name)) for name in names)]
    yield ["smallest", *(_times(comparison.summary.smallest.get(name)) for name in names)]


def _band(one: SpeedupSummary) -> str:
    ends = f"m from {one.least_m}" if one.most_m is None else f"m {one.least_m} to {one.most_m}"
    return f"{ends}, {count(one.shapes, 'shape')}"


def _times(speedup: float | None) -> str:
    return f"{speedup:.3f}x " if speedup else ""


def _row(row: ComparedShape, providers: Sequence[str]) -> list[str]:
    baseline, *others = (row.cells.get(provider) for provider in providers)
    cells = [row.name, _tflops(baseline)]
    for other in others:
        interval = f"{other.low:.3f} to {other.high:.3f}" if other else ""
        cells += [_tflops(other), f"{other.speedup:.3f}x{MARKS[other.verdict]}" if other else "", interval]
    return cells


def _tflops(cell: Cell | None) -> str:
    """With a question mark where nobody looked whether the result is right."""
    return f"{cell.tflops:.4g}{' ' if cell.is_checked else '?'}" if cell else "-"


def _notes(comparison: ProviderComparison) -> Iterator[str]:
    cells = [cell for row in comparison.shapes for cell in row.cells.values()]
    if any(not cell.is_checked for cell in cells):
        yield "?: the result was not compared with a reference"
    for gap in comparison.gaps:
        place = f", {gap.shape}" if gap.shape else ""
        yield f"{gap.kind}: {gap.provider}{place}: {gap.detail}"
    yield f"{count(len(comparison.shapes), 'shape')}, {count(len(comparison.gaps), 'gap')}"
