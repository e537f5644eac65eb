"""The command gemm generate, which writes and compiles kernels of many parameters for gemm bench."""

from __future__ import annotations

import json as as_json
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.gemm.build import (
    CutlassOption,
    JobSecondsOption,
    JobsOption,
    NvccOption,
    StoreOption,
)
from hillclimb.agent.commands.gemm.options import dtype_option, gemm, split_names
from hillclimb.agent.commands.gemm.winners import WinnersOption, read_winners
from hillclimb.agent.commands.options import REJECTED, JsonOption
from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.folder import locked
from hillclimb.harness.gemm.shape import Dtype
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.harness.gemm.generator.catalog import KernelCatalog
    from hillclimb.harness.gemm.generator.types import AnyPoint

GeneratorTypeOption = Annotated[
    str | None,
    typer.Option(
        "--generator-type",
        metavar="NAME",
        help="simple_gemm, scaled_mm, warpgroup_gemm or grouped_gemm. Default: simple_gemm.",
    ),
]
ParameterSetOption = Annotated[
    str | None,
    typer.Option(
        "--args",
        metavar="SET",
        help="Set of parameters: hopper; seed002 or stock, of CUTLASS's; flexible, of warpgroup_gemm. Default: hopper.",
    ),
]
KernelDtypeOption = Annotated[Dtype | None, dtype_option("the first that the type has")]
PatternsOption = Annotated[
    list[str] | None,
    typer.Option("--kernels", metavar="NAME", callback=split_names, help="Only these, * for anything."),
]
KernelFolderOption = Annotated[
    Path,
    typer.Option(
        "--output-dir", metavar="FOLDER", help="Where the kernels are written, in a folder by type and dtype."
    ),
]
PointListOption = Annotated[
    bool, typer.Option("--list", help="List the kernels and what speaks against them.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Build also what is known to be no good.")]


@gemm.command()
def generate(
    generator: GeneratorTypeOption = None,
    args: ParameterSetOption = None,
    dtype: KernelDtypeOption = None,
    kernels: PatternsOption = None,
    winners: WinnersOption = None,
    output_dir: KernelFolderOption = Path("build/gemm-kernels"),
    cutlass: CutlassOption = None,
    nvcc: NvccOption = None,
    store: StoreOption = Path("build/gemm-store"),
    jobs: JobsOption = None,
    timeout: JobSecondsOption = 1200.0,
    force: ForceOption = False,
    list_only: PointListOption = False,
    json: JsonOption = False,
) -> None:
    """Generate kernels of many parameters, compile them, and keep them for `gemm bench`. It takes no GPU.

    `simple_gemm` is of CUTLASS's collectives, 40 s of a core a kernel. `scaled_mm` is too, and multiplies each
    result by a scale of its row and one of its column; it takes scaled_fp8, or else scaled_int8. `warpgroup_gemm` is
    a template of our own, a second a kernel. `grouped_gemm` is of the same template; it multiplies each group of tokens
    by weights of its own, as a mixture of experts does.

    Of the set `flexible`, how K is split and whether a block takes one tile or more is chosen when a kernel is called.
    So it takes few of them to serve many shapes.

    A kernel that cannot be built, or that would be of no use, is told by rules before a compiler is asked. Kernels that
    are alike are compiled twelve to a file. What is compiled is kept, so the same command goes on where it was stopped.

    With `--winners` they are those of a choice, of a type or of several, instead of a set.

    Exit status 1: some kernel does not compile.

    Example: `hillclimb gemm generate --kernels "*_128x128x64_*" --output-dir build/gemm-kernels`
    """
    if winners and (generator or args or dtype or kernels):
        raise UsageError(
            "--winners names the kernels; leave --generator-type, --args, --dtype and --kernels out"
        )
    points = _named(winners) if winners else _points(generator, args, dtype, kernels)
    reasons = _reasons(points)
    if list_only:
        _print_list(points, reasons, json=json)
        return
    able = [point for point in points if force or not reasons[point.name]]
    if not able:
        raise UsageError("no kernel is left: all of them are known to be no good; --list tells why")
    how = partial(_build, cutlass=cutlass, nvcc=nvcc, store=store, jobs=jobs, timeout=timeout)
    built = _build_folders(able, output_dir, how)
    _print(built, len(points), json=json)
    if any(one.outcome != "built" for catalog in built.values() for one in catalog.kernels):
        raise typer.Exit(REJECTED)


def _named(winners: list[Path]) -> list[AnyPoint]:
    """Whatever their types are, each once."""
    from hillclimb.harness.gemm.generator.types import point_named, way_named

    found: dict[str, AnyPoint] = {}
    for name in read_winners(winners):
        way = way_named(name)
        point = way[0] if way else point_named(name)
        if point is None:
            raise UsageError(f"{name} is no kernel that can be generated; take it out of the file")
        found[point.name] = point
    return list(found.values())


def _points(
    generator: str | None, args: str | None, dtype: Dtype | None, kernels: list[str] | None
) -> list[AnyPoint]:
    from hillclimb.harness.gemm.generator.types import chosen_points, generator_type

    generator, args = generator or "simple_gemm", args or "hopper"
    points = chosen_points(generator, args, dtype or generator_type(generator).dtypes[0])
    if kernels:
        points = [one for one in points if any(fnmatchcase(one.name, pattern) for pattern in kernels)]
    if not points:
        raise UsageError(f"no kernel of {args} has the name {', '.join(kernels or [])}; --list lists them")
    return points


def _reasons(points: Sequence[AnyPoint]) -> dict[str, str]:
    from hillclimb.harness.gemm.generator.types import refusal

    return {point.name: refusal(point) for point in points}


def _build_folders(
    points: Sequence[AnyPoint], output_dir: Path, build: Callable[[Sequence[AnyPoint], Path], KernelCatalog]
) -> dict[Path, KernelCatalog]:
    """One for each type and dtype; then the operators of all that are there."""
    from hillclimb.harness.gemm.generator.catalog import catalog_folders, read_catalog
    from hillclimb.harness.gemm.generator.torch_binding import write_torch_ops

    folders: dict[Path, list[AnyPoint]] = {}
    for point in points:
        folders.setdefault(output_dir / f"{point.generator}_{point.dtype}", []).append(point)
    built = {}
    with locked(output_dir):
        for folder in {*catalog_folders(output_dir)} - {*folders}:
            read_catalog(folder)  # one that cannot be read is told before anything is compiled
        try:
            for folder, own in folders.items():
                built[folder] = build(own, folder)
        finally:
            if catalog_folders(output_dir):
                write_torch_ops(output_dir)
    return built


def _build(
    points: Sequence[AnyPoint],
    folder: Path,
    *,
    cutlass: Path | None,
    nvcc: Path | None,
    store: Path,
    jobs: int | None,
    timeout: float,
) -> KernelCatalog:
    from hillclimb.harness.gemm.compiler.cutlass import Headers, find_cutlass
    from hillclimb.harness.gemm.compiler.machine import default_jobs
    from hillclimb.harness.gemm.compiler.parallel import CompileRun
    from hillclimb.harness.gemm.compiler.store import BuildStore
    from hillclimb.harness.gemm.compiler.toolkit import find_toolkit
    from hillclimb.harness.gemm.generator.building import KernelBuilding
    from hillclimb.harness.gemm.generator.types import generator_type

    toolkit = find_toolkit(nvcc)
    tree = None
    if any(generator_type(point.generator).needs_cutlass for point in points):
        tree = find_cutlass(cutlass, store / "cutlass")
    headers = tree.headers if tree else Headers()
    run = CompileRun(BuildStore(store, toolkit, headers), jobs or default_jobs(), timeout)
    return KernelBuilding(tree, toolkit, _show).build(run, points, folder)


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print_list(points: Sequence[AnyPoint], reasons: dict[str, str], *, json: bool) -> None:
    if json:
        print(as_json.dumps({"kernels": reasons}))
        return
    for point in points:
        print(f"{point.name}  {reasons[point.name] or 'can be built'}")
    able = sum(not reason for reason in reasons.values())
    print(f"{able} of {count(len(points), 'kernel')} can be built")


def _print(catalogs: dict[Path, KernelCatalog], asked: int, *, json: bool) -> None:
    kernels = [one for catalog in catalogs.values() for one in catalog.kernels]
    failed = {one.point.name: one.diagnostics for one in kernels if one.outcome != "built"}
    unsound = [one.point.name for one in kernels if one.outcome == "built" and not one.is_sound]
    if json:
        told = {
            "folders": list(map(str, catalogs)),
            "asked": asked,
            "built": len(kernels) - len(failed),
            "failed": failed,
            "unsound": unsound,
        }
        print(as_json.dumps(told))
        return
    for name, diagnostics in failed.items():
        print(f"failed: {name}; read {diagnostics}")
    for name in unsound:
        print(f"unsound: {name} does not keep its sums in registers; it is not timed")
    built, refused = count(len(kernels) - len(failed), "kernel"), asked - len(kernels)
    print(
        f"{', '.join(map(str, catalogs))}: {built} built, {len(failed)} failed, {refused} not tried (--list tells why)"
    )
