"""The group of commands of the GEMM lab, and the options by which they choose shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from hillclimb.agent.commands.options import as_text
from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.shape import Dtype, GemmShape
from hillclimb.harness.wording import suggestion

gemm = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Matrix products of language models: which shapes there are, how fast kernels are on them, how their
    providers compare, and which few kernels serve them all.

    Examples:

    - `hillclimb gemm shapes`

    - `hillclimb gemm shapes --models Qwen/Qwen3-32B --tp-sizes 4 --batch-sizes 1,64 --dtype fp8`

    - `hillclimb gemm build-profiler --dtype fp8 --output build/cutlass_profiler`

    - `hillclimb gemm sweep --profiler-bin build/cutlass_profiler --output-dir times --shapes qkv_m16_n6144_k4096`

    - `hillclimb gemm bench model --models Qwen/Qwen3-32B --tp-sizes 4 --batch-sizes 1,64 --output-dir libraries`

    - `hillclimb gemm compare --baseline cublas.json triton.json cutlass.json`

    - `hillclimb gemm select cutlass.json triton.json --min-gemm-efficiency 0.98 --output chosen`

    - `hillclimb gemm claim generated.json --shapes qkv_m16_n6144_k4096`

    - `hillclimb gemm won hillclimb/gemm/qkv_m16_n6144_k4096_bf16/sweep > won.txt`

    - `hillclimb gemm heatmap cutlass.json triton.json --plot-all-ops --save-file all.svg`""",
)


DTYPES = get_args(Dtype)


def split_names(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or () for part in value.split(",")]


def whole_numbers(option: typer.CallbackParam, values: list[str] | None) -> list[int]:
    """Raises UsageError for what is no list of whole numbers above 0."""
    for value in values or ():
        if not all(part.isdecimal() and int(part) > 0 for part in split_names([value])):
            raise UsageError(f"{option.opts[0]} {value}: give whole numbers above 0, such as 1,2,8")
    return [int(part) for part in split_names(values)]


def _dtype(option: typer.CallbackParam, value: str | None) -> Dtype | None:
    if value is not None and value not in DTYPES:
        raise UsageError(f"{option.opts[0]} {value}: {suggestion(value, DTYPES)}")
    return cast("Dtype | None", value)


NamesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shapes",
        metavar="NAME",
        callback=split_names,
        help="These alone; may be repeated, or names by commas.",
    ),
]
ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        metavar="MODEL",
        callback=split_names,
        help="The layers of this model instead of the grid; may be repeated, or names by commas.",
    ),
]
GpusOption = Annotated[
    list[int] | None,
    typer.Option(
        "--tp-sizes",
        metavar="N,...",
        parser=as_text,
        callback=whole_numbers,
        help="Of models: GPUs that share one. Default: 1.",
    ),
]
TokensOption = Annotated[
    list[int] | None,
    typer.Option(
        "--batch-sizes",
        metavar="M,...",
        parser=as_text,
        callback=whole_numbers,
        help="Of models: tokens. Default: the grid's.",
    ),
]


def dtype_option(default: str) -> Any:
    """One that tells what it is where it is not given."""
    told = f"One of {', '.join(DTYPES)}. Default: {default}."
    return typer.Option(metavar="DTYPE", parser=as_text, callback=_dtype, help=told)


DtypeOption = Annotated[Dtype | None, dtype_option("bf16")]
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
