"""The commands gemm select and gemm heatmap."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.gemm.options import gemm, split_names, whole_numbers
from hillclimb.agent.commands.options import JsonOption, as_text
from hillclimb.harness.errors import UsageError
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.harness.gemm.portfolio.choosing import Choice
    from hillclimb.harness.gemm.portfolio.dispatch import Dispatch

ThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--min-gemm-efficiency", min=0, max=1, help="Of the best, that every shape reaches. Default: 0.98."
    ),
]
BestOption = Annotated[int | None, typer.Option(min=1, metavar="K", help="The best K in the mean instead.")]
CurveOption = Annotated[int, typer.Option(min=0, metavar="K", help="Also what the best 1 to K reach.")]
CallsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="YAML: shape -> how often it is called. Others do not count."),
]
RequireOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KERNEL", callback=split_names, help="Must be chosen; * stands for anything."),
]
ForbidOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KERNEL", callback=split_names, help="Must not be chosen; likewise."),
]
HeldOutOption = Annotated[
    list[int] | None,
    typer.Option(
        metavar="M,...",
        parser=as_text,
        callback=whole_numbers,
        help="Leave these out, and tell what they get.",
    ),
]
ExactOption = Annotated[
    bool, typer.Option("--exact", help="An efficiency below the threshold by its noise alone does not count.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Write dispatch.json, dispatch.hpp and dispatch.py there."),
]


@gemm.command()
def select(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Results, with many kernels a shape.")
    ],
    threshold: ThresholdOption = None,
    best: BestOption = None,
    curve: CurveOption = 0,
    calls: CallsOption = None,
    require: RequireOption = None,
    forbid: ForbidOption = None,
    held_out_m: HeldOutOption = None,
    exact: ExactOption = False,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="For one search; what is found by then counts.")
    ] = 60.0,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Choose the few kernels that serve many shapes, and the dispatch among them.

    By default the fewest by which every shape reaches a share of its best kernel's speed. The search is exact. Where
    the time does not suffice, how far the choice may be from the best is told.

    A generated kernel counts once, in however many ways it is run. Where results have other times to choose by, as
    those of `gemm bench` have, what is reached is told by times that chose nothing.

    The dispatch gives a measured shape the fastest way to run a chosen kernel. Between two measured m the cost model of
    `gemm bench` says which is faster, corrected by what all measured times teach and by those of both. Of kernels that
    it does not know the times alone are interpolated. Other weights get what the nearest ones have. What `--best`
    chooses is to serve the shapes between, too, unless `--calls` says which are called.

    Example: `hillclimb gemm select cutlass.json --best 8 --held-out-m 24,96,384`
    """
    from hillclimb.harness.gemm.portfolio.choosing import Wish, choose_kernels, matching
    from hillclimb.harness.gemm.portfolio.portfolio import gather
    from hillclimb.harness.gemm.results import read_all, read_calls

    if threshold is not None and best is not None:
        raise UsageError("--min-gemm-efficiency and --best are two questions; ask one of them")
    portfolio = gather(read_all(files))
    kernels = portfolio.kernels
    portfolio, weights = portfolio.called(read_calls(calls)) if calls else (portfolio, None)
    must, must_not = (matching(patterns or (), kernels) for patterns in (require, forbid))
    wish = Wish(threshold, best, must, must_not, not exact, seconds)
    show = None if json else _show
    choice = choose_kernels(portfolio, wish, weights, held_out_m or (), curve, show)
    if output:
        _write_dispatch(output, choice.dispatch)
    print(choice.model_dump_json(by_alias=True) if json else _told(choice, output))


@gemm.command()
def heatmap(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Results, with many kernels a shape.")
    ],
    save_file: Annotated[
        Path, typer.Option(metavar="FILE", help="The picture, .png or .svg, or a page, .html.")
    ] = Path("heatmap.png"),
    plot_all_ops: Annotated[
        bool, typer.Option("--plot-all-ops", help="All kernels, the chosen ones marked.")
    ] = False,
    select_kernels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KERNEL", callback=split_names, help="These, instead of the fewest at 0.98 of the best."
        ),
    ] = None,
) -> None:
    """Draw how fast every kernel is for every shape, as a share of the shape's best.

    Rows are shapes and columns are kernels, the best in the mean first. By default the kernels that `select` chooses. A
    page has all kernels: it tells of each cell, finds shapes and kernels, and orders the kernels by one shape.

    Example: `hillclimb gemm heatmap cutlass.json --plot-all-ops --save-file all.svg`
    """
    from hillclimb.harness.gemm.heatmap.picture import draw
    from hillclimb.harness.gemm.portfolio.choosing import Wish, fewest, matching
    from hillclimb.harness.gemm.portfolio.portfolio import gather
    from hillclimb.harness.gemm.results import read_all

    portfolio = gather(read_all(files))
    if select_kernels:
        chosen = matching(select_kernels, portfolio.kernels)
    else:
        chosen = tuple(portfolio.kernels[at] for at in fewest(portfolio, Wish()).kernels)
    if save_file.suffix == ".html":
        from hillclimb.harness.gemm.heatmap.page import draw_page

        print(draw_page(portfolio, save_file, chosen))
        return
    print(draw(portfolio, save_file, chosen, only_chosen=not plot_all_ops))


def _show(stage: str) -> None:
    print(stage, file=sys.stderr, flush=True)


def _write_dispatch(folder: Path, table: Dispatch) -> None:
    from hillclimb.harness.gemm.portfolio.dispatch_source import as_cpp, as_python

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dispatch.json").write_text(table.model_dump_json(by_alias=True, indent=1) + "\n")
    (folder / "dispatch.hpp").write_text(as_cpp(table))
    (folder / "dispatch.py").write_text(as_python(table))


def _told(choice: Choice, output: Path | None) -> str:
    """The kernels, a line for each part of the shapes, and the curve."""
    lines = [*choice.kernels, ""]
    for name, part in (("chosen for", choice.on_shapes), ("held out", choice.held_out)):
        if part:
            worst = f"worst {part.worst:.4f} at {part.worst_shape}"
            lines.append(f"{name}: {count(part.shapes, 'shape')}, mean {part.mean:.4f}, {worst}")
            if part.untimed:
                lines.append(f"  {part.untimed} of them are left out: what they get was not timed for them")
    if choice.gap:
        lines.append(f"another choice may be better by {choice.gap:.4f} in the mean; give it more --seconds")
    lines += [
        f"best {point.kernels}: mean {point.mean:.4f}, worst {point.worst:.4f}" for point in choice.curve
    ]
    fall_back = choice.dispatch.kernels[choice.dispatch.fall_back]
    ways = len(choice.dispatch.kernels)
    told = f" run in {ways} ways" if ways > len(choice.kernels) else ""
    lines.append(f"{count(len(choice.kernels), 'kernel')}{told}; what nothing is known of gets {fall_back}")
    return "\n".join([*lines, *([f"written to {output}"] if output else [])])
