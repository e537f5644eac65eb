"""The command gemm build-profiler, which builds a cutlass_profiler for gemm sweep."""

from __future__ import annotations

import json as as_json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.gemm.options import DtypeOption, gemm, split_names
from hillclimb.agent.commands.options import REJECTED, JsonOption
from hillclimb.harness.errors import UsageError
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.harness.gemm.compiler.parallel import CompileEnd
    from hillclimb.harness.gemm.profiler.building import ProfilerBinary

TargetOption = Annotated[Path, typer.Option(metavar="FILE", help="The program that is built.")]
KernelsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        callback=split_names,
        help="Kernels by name, * for anything. Default: those of --dtype.",
    ),
]
CutlassOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="Wheel of nvidia-cutlass, or a folder of it. Default: the installed one."
    ),
]
NvccOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The compiler. Default: the first found.")
]
ArchitectureOption = Annotated[str, typer.Option(metavar="ARCH", help="90a is of H100 and H200.")]
LevelOption = Annotated[
    str, typer.Option(metavar="LEVEL", help="How much CUTLASS instantiates: four digits, or max.")
]
StoreOption = Annotated[Path, typer.Option(metavar="FOLDER", help="Where what is compiled is kept.")]
JobsOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Compilers at once. Default: what cores and memory carry."),
]
JobSecondsOption = Annotated[
    float, typer.Option("--timeout", min=1, metavar="SECONDS", help="A file that takes longer is given up.")
]
KernelListOption = Annotated[bool, typer.Option("--list", help="List the kernels, and build nothing.")]


@gemm.command()
def build_profiler(
    output: TargetOption = Path("build/cutlass_profiler"),
    kernels: KernelsOption = None,
    dtype: DtypeOption = None,
    cutlass: CutlassOption = None,
    nvcc: NvccOption = None,
    architecture: ArchitectureOption = "90a",
    instantiation_level: LevelOption = "",
    store: StoreOption = Path("build/gemm-store"),
    jobs: JobsOption = None,
    timeout: JobSecondsOption = 1200.0,
    list_only: KernelListOption = False,
    json: JsonOption = False,
) -> None:
    """Build a cutlass_profiler from CUTLASS's own sources, for `gemm sweep`. It takes no GPU.

    A kernel takes about 40 s of a core, and the rest beside them a quarter of an hour of one. What is compiled is kept,
    so the same command goes on where it was stopped, and a further kernel costs itself only.

    Exit status 1: some kernel does not compile. The program is built without it.

    Example: `hillclimb gemm build-profiler --dtype fp8 --kernels "*e4m3_e4m3_f32_void_bf16_*_tnn_*pingpong*"`
    """
    from hillclimb.harness.gemm.compiler.cutlass import find_cutlass
    from hillclimb.harness.gemm.compiler.machine import default_jobs
    from hillclimb.harness.gemm.compiler.parallel import CompileRun
    from hillclimb.harness.gemm.compiler.store import BuildStore
    from hillclimb.harness.gemm.compiler.toolkit import find_toolkit
    from hillclimb.harness.gemm.profiler.building import KERNELS, ProfilerBuilding

    if dtype is not None and dtype not in KERNELS:
        raise UsageError(f"cutlass_profiler has no {dtype}; take one of {', '.join(KERNELS)}")
    toolkit = find_toolkit(nvcc)
    tree = find_cutlass(cutlass, store / "cutlass")
    patterns = tuple(kernels or [KERNELS[dtype or "bf16"]])
    building = ProfilerBuilding(tree, toolkit, store, patterns, architecture, instantiation_level)
    if list_only:
        print(as_json.dumps(building.kernels) if json else "\n".join(building.kernels))
        return
    run = CompileRun(BuildStore(store, toolkit, building.headers), jobs or default_jobs(), timeout, _show)
    found = building.build(run, output)
    _print(found, json=json)
    if found.failed:
        raise typer.Exit(REJECTED)


def _show(end: CompileEnd, done: int, total: int) -> None:
    print(f"{done} of {total}: {end}", file=sys.stderr)


def _print(found: ProfilerBinary, *, json: bool) -> None:
    if json:
        failed = {build.record.name: str(build.folder) for build in found.failed}
        print(as_json.dumps({"path": str(found.path), "kernels": found.kernels, "failed": failed}))
        return
    for build in found.failed:
        print(f"left out: {build.record.name} {build.record.outcome}; read {build.folder}/diagnostics")
    print(f"{found.path}: {count(len(found.kernels), 'kernel')}")
