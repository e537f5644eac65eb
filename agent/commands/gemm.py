"""Commands of the GEMM lab: gemm shapes, gemm compare."""

from __future__ import annotations

import json as as_json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from hillclimb.agent.commands.options import JsonOption, as_text
from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.shape import Dtype, GemmShape
from hillclimb.harness.wording import count, suggestion

gemm = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Matrix products of language models: which shapes there are, and how providers of kernels compare on them.

    Examples:

    - `hillclimb gemm shapes`

    - `hillclimb gemm shapes --models Qwen/Qwen3-32B --tp-sizes 4 --batch-sizes 1,64 --dtype fp8`

    - `hillclimb gemm compare --baseline cublas.json triton.json cutlass.json`""",
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
    from hillclimb.harness.gemm.definitions import FILE, choose, read_definitions

    if (tp_sizes or batch_sizes) and not models:
        raise UsageError("--tp-sizes and --batch-sizes are of --models; name one")
    known = read_definitions(definitions or FILE)
    if models:
        found = known.model_shapes(models, tp_sizes or [1], batch_sizes or known.grid.m, dtype or "bf16")
    else:
        found = [*known.named_shapes(dtype), *known.grid_shapes(dtype or "bf16")]
    chosen = choose(found, names or ())
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


def _print_table(chosen: list[GemmShape]) -> None:
    width = max(len(shape.name) for shape in chosen)
    print(f"{'name':{width}}  {'m':>6}  {'n':>6}  {'k':>6}  groups  dtype  FLOP/byte")
    for shape in chosen:
        intensity = shape.flops / shape.bytes
        sizes = f"{shape.m:6}  {shape.n:6}  {shape.k:6}  {shape.groups:6}"
        print(f"{shape.name:{width}}  {sizes}  {shape.dtype:5}  {intensity:9.4g}")
    print(count(len(chosen), "shape"))
