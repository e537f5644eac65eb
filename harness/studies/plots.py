"""A study's two pictures, drawn from its table: speedups with their intervals, and a roofline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hillclimb.harness.report.plots import CLIMB, FAINT, INK, MUTED, REFUSED, save
from hillclimb.harness.studies import times
from hillclimb.harness.studies.study import BASELINE
from hillclimb.harness.studies.times import TableHeader, TimesRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

SPEEDUPS, ROOFLINE = "speedups.png", "roofline.png"

ROW_INCHES = 0.21
MAX_ROWS = 400
"""Lines of the speedup picture; the table has the rest."""

DPI = 130


def draw(folder: Path) -> list[Path]:
    """Draw what the table of a study holds; each picture appears whole or not at all.

    Raises UsageError where the table is none.
    """
    known, rows = times.read(folder / times.TABLE_FILE)
    calls = one_row_per_call(rows)
    painters = {SPEEDUPS: paint_speedups, ROOFLINE: paint_roofline}
    return [save(folder / name, partial(paint, known, calls), DPI) for name, paint in painters.items()]


def one_row_per_call(rows: Iterable[TimesRow]) -> list[TimesRow]:
    """One row for each variant's call of a problem: the first of its kernels', which stands for all."""
    found: dict[tuple[str, str, str], TimesRow] = {}
    for row in rows:
        found.setdefault((*row.problem_key, row.variant), row)
    return list(found.values())


def paint_speedups(known: TableHeader, calls: Sequence[TimesRow]) -> Figure:
    """A line for each problem: the variant's speedup over the baseline, and over the yardstick, 95 % intervals."""
    from matplotlib import pyplot

    shown = [call for call in calls if call.speedup or call.over_torch][:MAX_ROWS]
    height = 1.3 + ROW_INCHES * max(len(shown), 3)
    figure, axes = pyplot.subplots(figsize=(9.5, height))
    axes.set_xscale("log")
    _mark(axes.xaxis, "x", (1, 1.5, 2, 3, 5, 7))
    for series, color, label, shift in (
        ([(c.speedup, c.speedup_low, c.speedup_high) for c in shown], CLIMB, "over the baseline", -0.13),
        (
            [(c.over_torch, c.over_torch_low, c.over_torch_high) for c in shown],
            REFUSED,
            "over torch (yardstick.py)",
            0.13,
        ),
    ):
        _paint_intervals(axes, series, color, label, shift)
    axes.axvline(1, color=MUTED, linewidth=1)
    axes.set_yticks(
        range(len(shown)), [f"{call.case}  {call.problem}  {call.variant}" for call in shown], fontsize=7
    )
    axes.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    axes.set_xlabel("speedup, geometric mean over fresh pairs of processes")
    axes.set_title(_place(known), loc="left", color=MUTED, fontsize=9, pad=20)
    if shown:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=8)
    figure.tight_layout()
    return figure


def paint_roofline(known: TableHeader, calls: Sequence[TimesRow]) -> Figure:
    """Work a second against work a byte; a line joins the baseline's point with each other variant's."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5.4))
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        _mark(axis, "", (1,))
    points = [call for call in calls if call.flops and call.bytes and call.call_us]
    _paint_roof(axes, known, [_intensity(call) for call in points])
    starts = {call.problem_key: call for call in points if call.variant == BASELINE}
    for variant in dict.fromkeys(call.variant for call in points):
        of_it = [call for call in points if call.variant == variant]
        hollow = variant == BASELINE
        axes.scatter(
            [_intensity(call) for call in of_it],
            [_rate(call) for call in of_it],
            s=22,
            label=variant,
            zorder=3,
            facecolors="none" if hollow else None,
            edgecolors=MUTED if hollow else None,
        )
        for call in of_it:
            if call.problem_key in starts and variant != BASELINE:
                pair = starts[call.problem_key], call
                axes.plot(
                    [_intensity(c) for c in pair],
                    [_rate(c) for c in pair],
                    color=FAINT,
                    linewidth=0.7,
                    zorder=2,
                )
    axes.set_xlabel("FLOPs a byte, by the contract")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(_place(known), loc="left", color=MUTED, fontsize=9)
    if points:
        axes.legend(loc="upper left", frameon=False, fontsize=8)
    figure.tight_layout()
    return figure


def _mark(axis: Axis, unit: str, steps: Sequence[float]) -> None:
    """These steps of every decade of a logarithmic axis, written out plainly."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
    axis.set_minor_formatter(NullFormatter())


def _paint_intervals(
    axes: Axes,
    series: Sequence[tuple[float | None, float | None, float | None]],
    color: str,
    label: str,
    shift: float,
) -> None:
    for place, (estimate, low, high) in enumerate(series):
        if estimate is None or low is None or high is None:
            continue
        axes.plot([low, high], [place + shift] * 2, color=color, linewidth=1.4, solid_capstyle="butt")
        axes.plot([estimate], [place + shift], "o", color=color, markersize=3.5, label=label)
        label = "_"  # named once


def _paint_roof(axes: Axes, known: TableHeader, intensities: Sequence[float]) -> None:
    """The measured copy bandwidth and the fastest matrix product, where the table tells them."""
    try:
        copy, peak = float(known["copy_gb_per_s"]) / 1e3, float(known["tflops"])
    except (KeyError, ValueError):
        return
    low, high = min([0.1, *intensities]) / 2, max([peak / copy, *intensities]) * 2
    axes.plot([low, peak / copy, high], [low * copy, peak, peak], color=INK, linewidth=1.2, zorder=1)


def _intensity(call: TimesRow) -> float:
    return (call.flops or 0.0) / (call.bytes or 1.0)


def _rate(call: TimesRow) -> float:
    return (call.flops or 0.0) / (call.call_us or 1.0) / 1e6


def _place(known: TableHeader) -> str:
    versions = [f"{name} {known[name]}" for name in ("torch", "triton", "driver") if name in known]
    return ", ".join([known.get("device", ""), *versions]).strip(", ")
