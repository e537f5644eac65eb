"""The command gemm compare."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hillclimb.agent.commands.gemm.options import NamesOption, gemm
from hillclimb.agent.commands.options import REJECTED, JsonOption


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
    means: Annotated[
        bool,
        typer.Option("--means", help="Print means alone, with those of the best provider of each shape."),
    ] = False,
    style: Annotated[Format, typer.Option("--format", help="How it is printed.")] = Format.TABLE,
    json: JsonOption = False,
) -> None:
    """Put providers of kernels beside a baseline: TFLOP/s and speedups, by shape.

    A file holds what one provider was measured to do, as docs/reference/schema/gemm-results.json says. A speedup has
    the interval that both times allow; + and - mark one that is proven. Means are geometric, of all shapes and by m.

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
        show = as_markdown if style is Format.MARKDOWN else as_table
        print(show(comparison, means_only=means))
    if comparison.gaps or (fail_on is FailOn.SLOWER and comparison.slower()):
        raise typer.Exit(REJECTED)
