"""Kernels of our own on a GPU: right in every way to run them, on sizes that no tile divides."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hillclimb.harness.gemm.compiler.cutlass import find_cutlass
from hillclimb.harness.gemm.compiler.machine import default_jobs
from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.store import BuildStore
from hillclimb.harness.gemm.compiler.toolkit import find_toolkit
from hillclimb.harness.gemm.families.point import CLUSTERS
from hillclimb.harness.gemm.families.run_option import RunOption, way_name
from hillclimb.harness.gemm.generator.building import KernelBuilding
from hillclimb.harness.gemm.generator.torch_binding import TORCH_OPS, write_torch_ops
from hillclimb.harness.gemm.generator.types import chosen_points, refusal
from hillclimb.harness.gemm.providers.cublas import Cublas
from hillclimb.harness.gemm.providers.cublaslt import CublasLt
from hillclimb.harness.gemm.providers.generated import Generated, KernelWay
from hillclimb.harness.gemm.providers.problem import ShapeProblem
from hillclimb.harness.gemm.providers.provider import Provider, UnsupportedError
from hillclimb.harness.gemm.providers.ways import further_options
from hillclimb.harness.gemm.shape import UNSCALED, Dtype, GemmShape

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu")]

COLUMNS: dict[Dtype, set[int]] = {
    "bf16": {8, 40, 120, 192},
    "f16": {64},
    "fp8": {48, 128},
    "scaled_fp8": {8, 48, 128},
}
SIZES = [(1, 4096, 1024), (100, 2120, 720), (520, 1288, 2048)]


def ways(provider: Generated) -> Iterator[KernelWay]:
    """Every kernel with both operands on its rows and in every cluster, and then in what else is tried of some."""
    for folder, catalog in provider.catalogs.items():
        for at, kernel in enumerate(catalog.kernels):
            for rows in ("tokens", "features"):
                for cluster in CLUSTERS:
                    option = RunOption(raster=1, is_dependent=True, rows=rows, cluster=cluster)
                    yield KernelWay(folder, kernel, option)
                    for other in further_options(kernel.point, option) if at % 8 == 0 else ():
                        yield KernelWay(folder, kernel, replace(other, is_dependent=at % 16 == 0))


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(provider: Provider, problem: ShapeProblem) -> Sequence[str]:
    """Its kernels; torch takes sizes in steps of 16 alone."""
    try:
        return provider.kernels(problem.shape, problem.sets[0])
    except UnsupportedError:
        assert isinstance(provider, Cublas) and problem.shape.n % 16
        return ()


SCALED = "_64x32x128_1x1_pingpong _128x64x128_1x2_cooperative"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("dtype", UNSCALED)
def test_kernels_with_scales_are_right(tmp_path: Path, dtype: Dtype) -> None:
    """Both operands on the rows, both schedulers, and the libraries that have such products."""
    points = [
        point
        for point in chosen_points("scaled_mm", "hopper", dtype)
        if any(part in point.name for part in SCALED.split()) and not refusal(point)
    ]
    toolkit, tree = find_toolkit(), find_cutlass(None, tmp_path)
    run = CompileRun(BuildStore(tmp_path / "store", toolkit, tree.headers), default_jobs())
    built = KernelBuilding(tree, toolkit).build(run, points, tmp_path / "kernels").kernels
    assert len(built) == 6 and all(one.is_sound for one in built)
    write_torch_ops(tmp_path / "kernels")
    operators = loaded(tmp_path / "kernels" / TORCH_OPS)
    providers = [
        Generated(str(tmp_path / "kernels")),
        *([Cublas(), CublasLt()] if dtype == "scaled_fp8" else []),
    ]
    tried = 0
    for m, n, k in SIZES:
        shape = GemmShape(f"m{m}", m, n, k, dtype)
        problem = ShapeProblem(shape, 2)
        for provider in providers:
            for name in named(provider, problem):
                assert not problem.check(name, provider.launch(shape, name)), name
                problem.forget(name)
                tried += 1
        one = problem.sets[0]
        for name in named(providers[0], problem):
            providers[0].launch(shape, name)(one)
            assert torch.equal(operators.gemm(name, one.x, one.w, one.x_scales, one.w_scales), one.out), name
    assert tried >= 6 * len(SIZES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("dtype", COLUMNS)
def test_own_kernels_are_right_in_every_way(tmp_path: Path, dtype: Dtype) -> None:
    points = [
        point
        for point in chosen_points("warpgroup_gemm", "hopper", dtype)
        if point.tile[1] in COLUMNS[dtype] and not refusal(point)
    ]
    toolkit = find_toolkit()
    run = CompileRun(BuildStore(tmp_path / "store", toolkit), default_jobs())
    built = KernelBuilding(None, toolkit).build(run, points, tmp_path / "kernels").kernels
    assert all(one.outcome == "built" for one in built)
    assert sum(one.is_sound for one in built) > 0.95 * len(built)
    provider = Generated(str(tmp_path / "kernels"))
    tried, refused, wrong = 0, 0, []
    for m, n, k in SIZES:
        shape = GemmShape(f"m{m}", m, n, k, dtype)
        problem = ShapeProblem(shape, 2)
        for way in ways(provider):
            name = way_name(way.point, way.option)
            provider._keep([way])
            try:
                told = problem.check(name, provider.launch(shape, name))
            except UnsupportedError:
                refused += 1
                continue
            problem.forget(name)
            tried += 1
            if told:
                wrong.append(f"{name} on {m}x{n}x{k}: {told}")
    assert not wrong, f"{len(wrong)} of {tried}: " + "\n".join(wrong[:20])
    assert tried > refused
