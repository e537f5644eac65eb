"""Commands of the GEMM lab: gemm shapes, gemm compare, gemm select, gemm heatmap. gemm sweep is in gemm_sweep.py."""

from __future__ import annotations

import json as as_json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from hillclimb.agent.commands.options import JsonOption, as_text
from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.shape import Dtype, GemmShape
from hillclimb.harness.wording import count, suggestion

if TYPE_CHECKING:
    from hillclimb.harness.gemm.choosing import Choice
    from hillclimb.harness.gemm.dispatch import Dispatch

gemm = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Matrix products of language models: which shapes there are, how fast kernels are on them, how their
    providers compare, and which few kernels serve them all.

    Examples:

    - `hillclimb gemm shapes`

    - `hillclimb gemm shapes --models Qwen/Qwen3-32B --tp-sizes 4 --batch-sizes 1,64 --dtype fp8`

    - `hillclimb gemm sweep --profiler-bin build/cutlass_profiler --output-dir times --shapes qkv_m16_n6144_k4096`

    - `hillclimb gemm compare --baseline cublas.json triton.json cutlass.json`

    - `hillclimb gemm select cutlass.json triton.json --min-gemm-efficiency 0.98 --output chosen`

    - `hillclimb gemm heatmap cutlass.json triton.json --plot-all-ops --save-file all.svg`""",
)

DTYPES = get_args(Dtype)


def _names(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or () for part in value.split(",")]


def _whole_numbers(option: typer.CallbackParam, values: list[str] | None) -> list[int]:
    """Raises UsageError for what is no list of whole numbers above 0."""
    for value in values or ():
        if not all(part.isdecimal() and int(part) > 0 for part in _names([value])):
            raise UsageError(f"{option.opts[0]} {value}: give whole numbers above 0, such as 1,2,8")
    return [int(part) for part in _names(values)]


def _dtype(option: typer.CallbackParam, value: str | None) -> Dtype | None:
    if value is not None and value not in DTYPES:
        raise UsageError(f"{option.opts[0]} {value}: {suggestion(value, DTYPES)}")
    return cast("Dtype | None", value)


NamesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shapes", metavar="NAME", callback=_names, help="These alone; may be repeated, or names by commas."
    ),
]
ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        metavar="MODEL",
        callback=_names,
        help="The layers of this model instead of the grid; may be repeated, or names by commas.",
    ),
]
GpusOption = Annotated[
    list[int] | None,
    typer.Option(
        "--tp-sizes",
        metavar="N,...",
        parser=as_text,
        callback=_whole_numbers,
        help="Of models: GPUs that share one. Default: 1.",
    ),
]
TokensOption = Annotated[
    list[int] | None,
    typer.Option(
        "--batch-sizes",
        metavar="M,...",
        parser=as_text,
        callback=_whole_numbers,
        help="Of models: tokens. Default: the grid's.",
    ),
]
DtypeOption = Annotated[
    Dtype | None,
    typer.Option(
        metavar="DTYPE", parser=as_text, callback=_dtype, help=f"One of {', '.join(DTYPES)}. Default: bf16."
    ),
]
DefinitionsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Another definition file. Default: the lab's own."),
]


def choose_shapes(
    names: list[str] | None,
    models: list[str] | None,
    tp_sizes: list[int] | None,
    batch_sizes: list[int] | None,
    dtype: Dtype | None,
    definitions: Path | None,
) -> list[GemmShape]:
    """What these options name. Raises UsageError for names that nobody knows."""
    from hillclimb.harness.gemm.definitions import FILE, choose, read_definitions

    if (tp_sizes or batch_sizes) and not models:
        raise UsageError("--tp-sizes and --batch-sizes are of --models; name one")
    known = read_definitions(definitions or FILE)
    if models:
        found = known.model_shapes(models, tp_sizes or [1], batch_sizes or known.grid.m, dtype or "bf16")
    else:
        found = [*known.named_shapes(dtype), *known.grid_shapes(dtype or "bf16")]
    return choose(found, names or ())


@gemm.command()
def shapes(
    names: NamesOption = None,
    models: ModelsOption = None,
    tp_sizes: GpusOption = None,
    batch_sizes: TokensOption = None,
    dtype: DtypeOption = None,
    definitions: DefinitionsOption = None,
    json: JsonOption = False,
) -> None:
    """List shapes: the single named ones and the fixed grid, or the layers of models.

    A shape has a name, m, n and k; of a mixture of experts also how many groups share the m rows. All of them stand in
    one file, to which yours can be added.

    Example: `hillclimb gemm shapes --shapes qkv_m16_n6144_k4096 --dtype fp8`
    """
    chosen = choose_shapes(names, models, tp_sizes, batch_sizes, dtype, definitions)
    if json:
        print(
            as_json.dumps([{**asdict(shape), "flops": shape.flops, "bytes": shape.bytes} for shape in chosen])
        )
        return
    _print_table(chosen)


class Format(StrEnum):
    """How a comparison is printed."""

    TABLE = "table"
    MARKDOWN = "markdown"


class FailOn(StrEnum):
    """What else than a gap ends with exit status 1."""

    SLOWER = "slower"


@gemm.command()
def compare(
    providers: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results of other providers.")],
    baseline: Annotated[
        Path, typer.Option(metavar="FILE", help="Results of the provider they stand beside.")
    ],
    names: NamesOption = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(help="Exit with 1 also where a provider is proven slower than the baseline."),
    ] = None,
    style: Annotated[Format, typer.Option("--format", help="How it is printed.")] = Format.TABLE,
    json: JsonOption = False,
) -> None:
    """Put providers of kernels beside a baseline: TFLOP/s and speedups, by shape.

    A file holds what one provider was measured to do, as docs/reference/schema/gemm-results.json says. A speedup has
    the interval that both times allow; + and - mark one that is proven.

    Exit status 1: a provider has no record of a shape, a wrong or an impossible one, or was measured on another card,
    driver or toolkit than the baseline. Every such gap is named.

    Example: `hillclimb gemm compare --baseline cublas.json triton.json --fail-on slower`
    """
    from hillclimb.harness.gemm.comparison import compare as compare_files
    from hillclimb.harness.gemm.results import only, read_all
    from hillclimb.harness.gemm.tables import as_markdown
    from hillclimb.harness.gemm.tables import as_text as as_table

    base, *others = only(read_all([baseline, *providers]), names or ())
    comparison = compare_files(base, others)
    if json:
        print(comparison.model_dump_json())
    else:
        print(as_markdown(comparison) if style is Format.MARKDOWN else as_table(comparison))
    if comparison.gaps or (fail_on is FailOn.SLOWER and comparison.slower()):
        raise typer.Exit(1)


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
    typer.Option(metavar="KERNEL", callback=_names, help="Must be chosen; * stands for anything."),
]
ForbidOption = Annotated[
    list[str] | None, typer.Option(metavar="KERNEL", callback=_names, help="Must not be chosen; likewise.")
]
HeldOutOption = Annotated[
    list[int] | None,
    typer.Option(
        metavar="M,...",
        parser=as_text,
        callback=_whole_numbers,
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

    The dispatch gives a measured shape its fastest chosen kernel, and another one what its neighbours say.

    Example: `hillclimb gemm select cutlass.json --best 8 --held-out-m 24,96,384`
    """
    from hillclimb.harness.gemm.choosing import Wish, choose_kernels, matching
    from hillclimb.harness.gemm.portfolio import gather
    from hillclimb.harness.gemm.results import read_all, read_calls

    if threshold is not None and best is not None:
        raise UsageError("--min-gemm-efficiency and --best are two questions; ask one of them")
    portfolio = gather(read_all(files))
    kernels = portfolio.kernels
    portfolio, weights = portfolio.called(read_calls(calls)) if calls else (portfolio, None)
    must, must_not = (matching(patterns or (), kernels) for patterns in (require, forbid))
    wish = Wish(threshold, best, must, must_not, not exact, seconds)
    choice = choose_kernels(portfolio, wish, weights, held_out_m or (), curve)
    if output:
        _write_dispatch(output, choice.dispatch)
    print(choice.model_dump_json(by_alias=True) if json else _told(choice, output))


@gemm.command()
def heatmap(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Results, with many kernels a shape.")
    ],
    save_file: Annotated[Path, typer.Option(metavar="FILE", help="The picture, .png or .svg.")] = Path(
        "heatmap.png"
    ),
    plot_all_ops: Annotated[
        bool, typer.Option("--plot-all-ops", help="All kernels, the chosen ones marked.")
    ] = False,
    select_kernels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KERNEL", callback=_names, help="These, instead of the fewest at 0.98 of the best."
        ),
    ] = None,
) -> None:
    """Draw how fast every kernel is for every shape, as a share of the shape's best.

    Rows are shapes and columns are kernels, the best in the mean first. By default the kernels that `select` chooses.

    Example: `hillclimb gemm heatmap cutlass.json --plot-all-ops --save-file all.svg`
    """
    from hillclimb.harness.gemm.choosing import Wish, choose_kernels, matching
    from hillclimb.harness.gemm.heatmap import draw
    from hillclimb.harness.gemm.portfolio import gather
    from hillclimb.harness.gemm.results import read_all

    portfolio = gather(read_all(files))
    if select_kernels:
        chosen = matching(select_kernels, portfolio.kernels)
    else:
        chosen = choose_kernels(portfolio, Wish()).kernels
    print(draw(portfolio, save_file, chosen, only_chosen=not plot_all_ops))


def _write_dispatch(folder: Path, table: Dispatch) -> None:
    from hillclimb.harness.gemm.dispatch_source import as_cpp, as_python

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
    if choice.gap:
        lines.append(f"another choice may be better by {choice.gap:.4f} in the mean; give it more --seconds")
    lines += [
        f"best {point.kernels}: mean {point.mean:.4f}, worst {point.worst:.4f}" for point in choice.curve
    ]
    fall_back = choice.dispatch.kernels[choice.dispatch.fall_back]
    lines.append(f"{count(len(choice.kernels), 'kernel')}; what nothing is known of gets {fall_back}")
    return "\n".join([*lines, *([f"written to {output}"] if output else [])])


def _print_table(chosen: list[GemmShape]) -> None:
    width = max(len(shape.name) for shape in chosen)
    print(f"{'name':{width}}  {'m':>6}  {'n':>6}  {'k':>6}  groups  dtype  FLOP/byte")
    for shape in chosen:
        intensity = shape.flops / shape.bytes
        sizes = f"{shape.m:6}  {shape.n:6}  {shape.k:6}  {shape.groups:6}"
        print(f"{shape.name:{width}}  {sizes}  {shape.dtype:5}  {intensity:9.4g}")
    print(count(len(chosen), "shape"))
