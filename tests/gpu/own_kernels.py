"""Kernels of our own, built on the machine of the GPU, and every way to run them."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import get_args

from hillclimb.harness.gemm.compiler.machine import default_jobs
from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.store import BuildStore
from hillclimb.harness.gemm.compiler.toolkit import find_toolkit
from hillclimb.harness.gemm.families.point import CLUSTERS, RowOperand
from hillclimb.harness.gemm.families.run_option import RunOption, way_name
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.families.warpgroup_rules import FLEXIBLE_FORMS
from hillclimb.harness.gemm.generator.building import KernelBuilding
from hillclimb.harness.gemm.generator.types import AnyPoint, chosen_points, refusal
from hillclimb.harness.gemm.providers.generated import Generated, KernelWay
from hillclimb.harness.gemm.providers.problem import ShapeProblem
from hillclimb.harness.gemm.providers.provider import UnsupportedError
from hillclimb.harness.gemm.providers.ways import further_options
from hillclimb.harness.gemm.shape import Dtype


def build_own(
    folder: Path, generator: str, dtype: Dtype, columns: Collection[int], parameters: str = "hopper"
) -> Path:
    """Those of a set that have so many columns; their folder."""
    points = [
        point
        for point in chosen_points(generator, parameters, dtype)
        if point.tile[1] in columns and not refusal(point)
    ]
    toolkit = find_toolkit()
    run = CompileRun(BuildStore(folder / "store", toolkit), default_jobs())
    built = KernelBuilding(None, toolkit).build(run, points, folder / "kernels").kernels
    assert len(built) > 30 and all(one.outcome == "built" for one in built)
    assert sum(one.is_sound for one in built) > 0.95 * len(built)
    return folder / "kernels"


def every_way(provider: Generated) -> Iterator[KernelWay]:
    """Every kernel with both operands on its rows and in every cluster, and then in what else is tried of some."""
    for folder, catalog in provider.catalogs.items():
        for at, kernel in enumerate(catalog.kernels):
            for option in options(kernel.point):
                yield KernelWay(folder, kernel, option)
                for other in further_options(kernel.point, option) if at % 8 == 0 else ():
                    yield KernelWay(folder, kernel, replace(other, is_dependent=at % 16 == 0))


def options(point: AnyPoint) -> Iterator[RunOption]:
    """Both operands on the rows, every cluster, and all that a flexible kernel can be."""
    is_flexible = isinstance(point, WarpgroupPoint) and point.is_flexible
    for rows, cluster in product(get_args(RowOperand), CLUSTERS):
        for splits, is_persistent in FLEXIBLE_FORMS if is_flexible else ((1, False),):
            yield RunOption(
                raster=1,
                is_dependent=True,
                rows=rows,
                cluster=cluster,
                splits=splits,
                is_persistent=is_persistent,
            )


def check_every_way(provider: Generated, problem: ShapeProblem) -> tuple[int, int, list[str]]:
    """How many were tried, how many the kernels refuse, and what is wrong."""
    tried, refused, wrong = 0, 0, []
    for way in every_way(provider):
        name = way_name(way.point, way.option)
        provider._keep([way])
        try:
            told = problem.check(name, provider.launch(problem.shape, name))
        except UnsupportedError:
            refused += 1
            continue
        problem.forget(name)
        tried += 1
        if told:
            wrong.append(f"{name} on {problem.shape}: {told}")
    return tried, refused, wrong


def loaded(path: Path) -> ModuleType:
    """A module by its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
