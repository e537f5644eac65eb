"""The efficiency of every kernel for every shape, as a picture: PNG or SVG, by the file's name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")

CELL_INCHES = 0.115
"""Width and height of one cell: a label of the smallest readable size fits beside it."""

LEAST_INCHES, MOST_INCHES = 3.0, 120.0
"""Of the matrix in either direction."""

DPI = 130
FONT_SIZE = 6.5
"""Points."""

INK, FAINT, CHOSEN = "#1f2933", "#d5dbe1", "#c8553d"
COLOURS = "viridis"
LOWEST = 0.5
"""Efficiencies below this have one colour: differences near 1 matter."""

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": FONT_SIZE,
    "text.color": INK,
    "text.parse_math": False,
    "svg.hashsalt": "hillclimb",
}


def draw(
    portfolio: Portfolio, target: Path, chosen: Sequence[str] = (), *, only_chosen: bool = False
) -> Path:
    """A row for each shape and a column for each kernel, the best in the mean first; `chosen` ones are marked.

    The file appears whole or not at all. Raises UsageError for a file of another kind, and for unknown kernels.
    """
    if target.suffix not in FORMATS:
        raise UsageError(f"{target}: give a name that ends with {', '.join(FORMATS)} or .html")
    columns = order(portfolio, [portfolio.column(kernel) for kernel in chosen] if only_chosen else None)
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(STYLE):
        figure = paint(portfolio, columns, chosen)
        fresh = target.with_name(f".{target.name}.new")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            undated = {"Date": None} if target.suffix == ".svg" else None
            figure.savefig(fresh, format=target.suffix[1:], dpi=DPI, bbox_inches="tight", metadata=undated)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
    return target


def order(portfolio: Portfolio, columns: Sequence[int] | None = None) -> list[int]:
    """These columns, or all, by their mean efficiency; of equal ones the first."""
    means = portfolio.efficiency.mean(axis=0)
    return sorted(range(len(means)) if columns is None else columns, key=lambda column: -means[column])


def paint(portfolio: Portfolio, columns: Sequence[int], chosen: Sequence[str]) -> Figure:
    """Cells without a time are blank."""
    from matplotlib.figure import Figure

    values = np.where(portfolio.efficiency > 0, portfolio.efficiency, np.nan)[:, list(columns)]
    height, width = (min(MOST_INCHES, max(LEAST_INCHES, CELL_INCHES * size)) for size in values.shape)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_facecolor(FAINT)
    image = axes.imshow(values, cmap=COLOURS, vmin=LOWEST, vmax=1, aspect="auto", interpolation="nearest")
    _label(axes, portfolio, columns, chosen)
    bar = figure.add_axes((1 + 0.15 / width, 0, 0.12 / width, min(1.0, 2.5 / height)))
    figure.colorbar(image, cax=bar, extend="min", label="share of the speed of the shape's best kernel")
    return figure


def _label(axes: Axes, portfolio: Portfolio, columns: Sequence[int], chosen: Sequence[str]) -> None:
    names = [portfolio.kernels[column] for column in columns]
    axes.set_yticks(range(len(portfolio.shapes)), [shape.name for shape in portfolio.shapes])
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=FONT_SIZE)
    for label, name in zip(axes.get_xticklabels(), names, strict=True):
        if name in chosen:
            label.set_color(CHOSEN)
            label.set_fontweight("bold")
    for place, name in enumerate(names):
        if name in chosen:
            axes.axvline(place - 0.5, color=CHOSEN, linewidth=0.6)
            axes.axvline(place + 0.5, color=CHOSEN, linewidth=0.6)
