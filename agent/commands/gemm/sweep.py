"""The command gemm sweep, which times every kernel of a cutlass_profiler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.gemm.options import (
    DefinitionsOption,
    DtypeOption,
    GpusOption,
    ModelsOption,
    NamesOption,
    TokensOption,
    choose_shapes,
    gemm,
)
from hillclimb.agent.commands.options import REJECTED, JsonOption
from hillclimb.harness.errors import UsageError
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.harness.gemm.profiler.sweep import ProfilerSweep, ShapeState
    from hillclimb.harness.gemm.results import Failed, Measured
    from hillclimb.harness.gemm.shape import GemmShape

BinaryOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", envvar="CUTLASS_PROFILER_BIN", help="The cutlass_profiler that you built."),
]
FolderOption = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Where all of it is kept; a sweep goes on there.")
]
FlagsOption = Annotated[
    str, typer.Option(metavar="FLAGS", help="More flags, as --name=value with spaces between.")
]
TimeoutOption = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="A kernel that is silent for so long is given up.")
]


@gemm.command()
def sweep(
    profiler_bin: BinaryOption = None,
    output_dir: FolderOption = Path("artifacts/cutlass_profiler"),
    names: NamesOption = None,
    models: ModelsOption = None,
    tp_sizes: GpusOption = None,
    batch_sizes: TokensOption = None,
    dtype: DtypeOption = None,
    definitions: DefinitionsOption = None,
    extra_profiler_flags: FlagsOption = "",
    timeout: TimeoutOption = 60.0,
    json: JsonOption = False,
) -> None:
    """Time every kernel of a cutlass_profiler on every shape, and keep what each did.

    One process runs all kernels of a shape. Where a kernel ends it, hangs or breaks the GPU's state, another process
    goes on behind it, so its own record is all it costs. A wrong result never counts. Operands are random and not in
    the cache.

    The same command goes on where it was stopped, whatever stopped it. The results are in
    FOLDER/cutlass_profiler_results.json, for `gemm compare` and `gemm select`.

    Exit status 1: for some shape no kernel was right.

    Example: `hillclimb gemm sweep --profiler-bin build/cutlass_profiler --output-dir times --dtype fp8`
    """
    from hillclimb.harness.gemm.card import find_card
    from hillclimb.harness.gemm.profiler.command import CutlassProfiler
    from hillclimb.harness.gemm.profiler.sweep import RESULTS, ProfilerSweep

    if profiler_bin is None:
        raise UsageError("no cutlass_profiler: give --profiler-bin, or set CUTLASS_PROFILER_BIN")
    chosen = choose_shapes(names, models, tp_sizes, batch_sizes, dtype, definitions)
    if not names:
        chosen = [shape for shape in chosen if shape.groups == 1]
    profiler = CutlassProfiler(profiler_bin.resolve(), tuple(extra_profiler_flags.split()), timeout)
    found = ProfilerSweep(profiler, output_dir, find_card())
    try:
        missing = [shape.name for shape in chosen if not _sweep_one(found, shape, quiet=json)]
    finally:
        results = found.write_results(chosen)
    if json:
        print(results.model_dump_json(by_alias=True))
    else:
        kept = f"{count(len(results.results), 'time')}, {count(len(results.failed), 'failure')}"
        print(f"{count(len(chosen), 'shape')}: {kept}; written to {output_dir / RESULTS}")
    if missing:
        print(f"no right kernel for {', '.join(missing)}", file=sys.stderr)
        raise typer.Exit(REJECTED)


def _sweep_one(found: ProfilerSweep, shape: GemmShape, *, quiet: bool) -> bool:
    """Whether it has a right kernel."""

    def watch(state: ShapeState) -> None:
        kernels = count(state.settled + len(state.left), "kernel")
        print(f"{shape.name}: {state.settled} of {kernels}", file=sys.stderr)

    measured, failed = found.run(shape, watch).results(found.settings.gpu)
    if not quiet:
        print(_told(shape, measured, failed))
    return bool(measured)


def _told(shape: GemmShape, measured: list[Measured], failed: list[Failed]) -> str:
    """The best of it, and how many there are."""
    beside = f"{len(measured)} right, {len(failed)} failed"
    if not measured:
        return f"{shape.name}: {beside}"
    best = min(measured, key=lambda one: one.runtime_ms)
    return f"{shape.name}: {best.achieved_tflops:.1f} TFLOP/s, {best.kernel}; {beside}"
