"""Draws progress.png from a run's ledger: `python -m hillclimb.harness.report.plots RUN_FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.report.progress_data import PlottedWin, ProgressData, read_progress
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text

PICTURE = "progress.png"

INK, MUTED, FAINT, GRID = "#1f2933", "#66727f", "#a9b4c0", "#e6eaee"
CLIMB, BAND, REFUSED = "#0b7a5c", "#bfe5d8", "#c8553d"

MIN_LOG_RATIO = 6.0
"""Largest over smallest speedup shown from which the axis is logarithmic."""
RIGHT = 0.985
"""Where text ends, as a share of the width."""
MAX_NAMED_WINS = 14
MAX_TEXT_CHARS = 200
MIN_SHOWN_SPEEDUP = 0.3
"""Dots slower than this, over the baseline, are drawn at the bottom edge: failures deserve no room."""
MIN_LABEL_DISTANCE = 0.05
"""Share of the width that two named points keep between them."""

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
}


def draw_progress(folder: Path) -> Path:
    """Draw the run in `folder`; the picture appears whole or not at all. Raises UsageError without a ledger."""
    story = read_progress(folder)
    return save(folder / PICTURE, lambda: paint(story), dpi=150)


def save(target: Path, paint: Callable[[], Figure], dpi: int) -> Path:
    """What `paint` makes, in the style of all our pictures; the file appears whole or not at all."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    fresh = target.with_name(f".{target.name}.new")
    with matplotlib.rc_context(STYLE):
        figure = paint()
        try:
            figure.savefig(fresh, format="png", dpi=dpi)
        finally:
            pyplot.close(figure)
    return fresh.replace(target)


def paint(story: ProgressData) -> Figure:
    """The picture: the climb on the left, the list of wins on the right."""
    from matplotlib import pyplot

    figure, (climb, listing) = pyplot.subplots(
        1, 2, figsize=(11.5, 5.4), width_ratios=(2.6, 1), gridspec_kw={"wspace": 0.03}
    )
    figure.subplots_adjust(left=0.065, right=RIGHT, top=0.845, bottom=0.105)
    _scale(climb, story)
    _paint_candidates(climb, story)
    _paint_climb(climb, story)
    _paint_list(listing, story)
    titles = _write_title(figure, story)
    legend = _write_legend(figure, climb)
    for text in [*listing.texts, *titles[1:]]:
        _fit(figure, text, RIGHT * figure.bbox.width)
    _fit(figure, titles[0], legend.get_window_extent().x0 - 10)
    return figure


def _fit(figure: Figure, text: Text, right: float) -> None:
    """Cut a text, with an ellipsis, where it would pass `right`, in pixels."""
    whole = text.get_text()
    for length in range(len(whole) - 1, 0, -1):
        if text.get_window_extent().x1 <= right:
            return
        text.set_text(f"{whole[:length].rstrip()}…")


def _scale(axes: Axes, story: ProgressData) -> None:
    """Limits that show every win and every candidate worth seeing."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    rejected = [value for _, value in (*story.screened, *story.decided)]
    highest = max([1.0, *(win.high for win in story.wins), *rejected])
    slowest = min([1.0, *(win.low for win in story.wins), *rejected])
    lowest = max(slowest, MIN_SHOWN_SPEEDUP)
    end = max(story.judged, 4)
    axes.set_xlim(-0.02 * end, 1.03 * end)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if highest / lowest >= MIN_LOG_RATIO:
        _scale_logarithmically(axes, lowest, highest)
    else:
        room = max(highest - lowest, 0.1)
        axes.set_ylim(lowest - 0.12 * room, highest + 0.08 * room)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.set_xlabel("candidate")
    axes.set_ylabel("speedup over the baseline")


def _scale_logarithmically(axes: Axes, lowest: float, highest: float) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    span = highest / lowest
    axes.set_yscale("log")
    axes.set_ylim(lowest / span**0.1, highest * span**0.06)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if span < 1000 else (1,)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _paint_candidates(axes: Axes, story: ProgressData) -> None:
    """Rejections as dots, darker where fresh pairs timed them, and a tick at the bottom for what the gate stopped."""
    bottom = axes.get_ylim()[0]
    size = 16 if story.judged < 300 else 7
    for dots, color, label in ((story.screened, FAINT, "screened"), (story.decided, MUTED, "decided")):
        if dots:
            numbers, values = zip(*dots, strict=True)
            shown = [max(value, bottom) for value in values]
            axes.scatter(numbers, shown, s=size, color=color, alpha=0.7, linewidths=0, label=label, zorder=2)
    if story.untimed:
        axes.plot(
            story.untimed,
            [0.012] * len(story.untimed),
            "|",
            color=REFUSED,
            markersize=8,
            alpha=0.8,
            transform=axes.get_xaxis_transform(),
            label="stopped by the gate",
            zorder=2,
        )


def _paint_climb(axes: Axes, story: ProgressData) -> None:
    """Best so far with its interval, and a point for every win."""
    start = PlottedWin(0, "baseline", 1.0, 1.0, 1.0)
    steps = [start, *story.wins]
    numbers = [*(win.n for win in steps), max(story.judged, steps[-1].n + 1)]
    axes.axhline(1.0, color=FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    lows, highs, best = ([*column, column[-1]] for column in zip(*map(_bounds, steps), strict=True))
    axes.fill_between(numbers, lows, highs, step="post", color=BAND, linewidth=0, zorder=3)
    axes.step(numbers, best, where="post", color=CLIMB, linewidth=2, label="best so far", zorder=4)
    if story.wins:
        _paint_wins(axes, story.wins)


def _bounds(win: PlottedWin) -> tuple[float, float, float]:
    return win.low, win.high, win.estimate


def _paint_wins(axes: Axes, wins: tuple[PlottedWin, ...]) -> None:
    estimates = [win.estimate for win in wins]
    errors = [[win.estimate - win.low for win in wins], [win.high - win.estimate for win in wins]]
    axes.errorbar(
        [win.n for win in wins],
        estimates,
        yerr=errors,
        fmt="o",
        markersize=6,
        color=CLIMB,
        markeredgecolor="white",
        markeredgewidth=1,
        elinewidth=1.2,
        capsize=2.5,
        label="win, 95 % interval",
        zorder=5,
    )
    left, right = axes.get_xlim()
    for win in _spread(wins, MIN_LABEL_DISTANCE * (right - left)):
        axes.annotate(
            f"#{win.n}",
            (win.n, win.estimate),
            xytext=(-3, 6),
            textcoords="offset points",
            ha="right",
            fontsize=8.5,
            color=CLIMB,
            zorder=6,
        )


def _spread(wins: tuple[PlottedWin, ...], distance: float) -> list[PlottedWin]:
    """The greatest gains whose names do not run into each other."""
    chosen: list[PlottedWin] = []
    for win in _by_gain(wins):
        if all(abs(win.n - other.n) >= distance for other in chosen):
            chosen.append(win)
    return chosen


def _told(wins: tuple[PlottedWin, ...]) -> list[PlottedWin]:
    """The wins that gained most, as many as there is room to name, in order."""
    return sorted(_by_gain(wins)[:MAX_NAMED_WINS], key=lambda win: win.n)


def _by_gain(wins: tuple[PlottedWin, ...]) -> list[PlottedWin]:
    """Largest step over the win before it first."""
    before = [1.0, *(win.estimate for win in wins)][:-1]
    gains = {win.n: win.estimate / last for win, last in zip(wins, before, strict=True)}
    return sorted(wins, key=lambda win: -gains[win.n])


def _paint_list(axes: Axes, story: ProgressData) -> None:
    """The wins by name, newest on top, like the curve beside it."""
    axes.axis("off")
    told = _told(story.wins)
    omitted = len(story.wins) - len(told)
    heading = f"wins ({omitted} smaller ones not named)" if omitted else "wins"
    axes.text(0.04, 1.0, heading, transform=axes.transAxes, va="top", color=MUTED, fontsize=9)
    if not told:
        axes.text(0.04, 0.92, "none so far", transform=axes.transAxes, va="top", color=MUTED)
    for row, win in enumerate(reversed(told)):
        height = 0.93 - 0.066 * row
        _write(axes, 0.04, height, f"#{win.n}", CLIMB)
        _write(axes, 0.17, height, _times(win.estimate), INK, weight="bold")
        _write(axes, 0.33, height, _shorten(win.idea), MUTED)


def _write(axes: Axes, x: float, y: float, text: str, color: str, weight: str = "normal") -> None:
    axes.text(x, y, text, transform=axes.transAxes, va="top", fontsize=8.5, color=color, weight=weight)


def _times(speedup: float) -> str:
    """Three digits are what a duel resolves."""
    decimals = 2 if speedup < 10 else 1 if speedup < 100 else 0
    return f"{speedup:.{decimals}f}×"


def _shorten(idea: str) -> str:
    line = "".join(c if c.isprintable() else " " for c in idea).strip()
    return line[:MAX_TEXT_CHARS]


def _write_title(figure: Figure, story: ProgressData) -> list[Text]:
    title = _shorten(f"{_times(story.best)}  {story.case}")
    return [
        figure.text(0.065, 0.945, title, fontsize=16, weight="bold", va="center"),
        figure.text(0.065, 0.893, _shorten(_subtitle(story)), fontsize=9.5, color=MUTED, va="center"),
    ]


def _write_legend(figure: Figure, axes: Axes) -> Legend:
    handles, labels = axes.get_legend_handles_labels()
    return figure.legend(
        handles,
        labels,
        loc="center right",
        bbox_to_anchor=(RIGHT, 0.945),
        ncols=len(labels),
        frameon=False,
        fontsize=9,
        labelcolor=MUTED,
        handletextpad=0.4,
        columnspacing=1.4,
    )


def _subtitle(story: ProgressData) -> str:
    facts = [f"run {story.tag}", count(story.judged, "candidate"), count(len(story.wins), "win")]
    if story.remeasured:
        estimate, low, high = story.remeasured
        curve = (
            f"; the curve ends at {story.wins[-1].estimate:.3f}×, as measured when that win was kept"
            if story.wins
            else ""
        )
        facts.append(f"measured again at the end: {estimate:.3f}× [{low:.3f}, {high:.3f}]{curve}")
    elif story.wins:
        last = story.wins[-1]
        facts.append(f"over the baseline {last.estimate:.3f}× [{last.low:.3f}, {last.high:.3f}]")
    if story.device:
        facts.append(story.device)
    return "   ·   ".join(facts)


def main() -> int:
    """Draw; 0 when the picture is there, 2 with one line on stderr where it cannot be."""
    if len(sys.argv) != 2:
        print("usage: python -m hillclimb.harness.report.plots RUN_FOLDER", file=sys.stderr)
        return 2
    try:
        print(draw_progress(Path(sys.argv[1])))
    except (HillclimbError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
