"""Kernels of our own on a GPU: right in every way to run them, on sizes that no tile divides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from hillclimb.harness.gemm.compiler.cutlass import find_cutlass
from hillclimb.harness.gemm.compiler.machine import default_jobs
from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.store import BuildStore
from hillclimb.harness.gemm.compiler.toolkit import find_toolkit
from hillclimb.harness.gemm.families.run_option import way_name
from hillclimb.harness.gemm.generator.building import KernelBuilding
from hillclimb.harness.gemm.generator.torch_binding import TORCH_OPS, write_torch_ops
from hillclimb.harness.gemm.generator.types import chosen_points, refusal
from hillclimb.harness.gemm.providers.cublas import Cublas
from hillclimb.harness.gemm.providers.cublaslt import CublasLt
from hillclimb.harness.gemm.providers.generated import Generated
from hillclimb.harness.gemm.providers.problem import ShapeProblem
from hillclimb.harness.gemm.providers.provider import Provider, UnsupportedError
from hillclimb.harness.gemm.shape import UNSCALED, Dtype, GemmShape
from tests.gpu.own_kernels import build_own, check_every_way, every_way, loaded

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu")]

COLUMNS: dict[Dtype, set[int]] = {
    "bf16": {8, 40, 120, 192},
    "f16": {64},
    "fp8": {48, 128},
    "scaled_fp8": {8, 48, 128},
}
SIZES = [(1, 4096, 1024), (100, 2120, 720), (520, 1288, 2048)]


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
@pytest.mark.parametrize(
    ("dtype", "parameters"),
    [*((dtype, "hopper") for dtype in COLUMNS), *((dtype, "flexible") for dtype in ("bf16", "scaled_fp8"))],
)
def test_own_kernels_are_right_in_every_way(tmp_path: Path, dtype: Dtype, parameters: str) -> None:
    provider = Generated(str(build_own(tmp_path, "warpgroup_gemm", dtype, COLUMNS[dtype], parameters)))
    tried, refused, wrong = 0, 0, list[str]()
    for m, n, k in SIZES:
        counts = check_every_way(provider, ShapeProblem(GemmShape(f"m{m}", m, n, k, dtype), 2))
        tried, refused, wrong = tried + counts[0], refused + counts[1], wrong + counts[2]
    assert not wrong, f"{len(wrong)} of {tried}: " + "\n".join(wrong[:20])
    assert tried > refused


@pytest.mark.timeout(600)
def test_a_result_does_not_depend_on_where_its_tile_begins(tmp_path: Path) -> None:
    """The last tiles of a result begin earlier than they would, and what they share with others is written twice."""
    provider = Generated(str(build_own(tmp_path, "warpgroup_gemm", "bf16", {40, 120, 192}, "flexible")))
    whole, part = (
        ShapeProblem(GemmShape(f"m{m}", m, n, 2048, "bf16"), 2) for m, n in ((776, 1400), (520, 1288))
    )
    of_whole, of_part = whole.sets[0], part.sets[0]
    of_part.x.copy_(of_whole.x[:520])
    of_part.w.copy_(of_whole.w[:1288])
    tried, wrong = 0, list[str]()
    for way in every_way(provider):
        name = way_name(way.point, way.option)
        provider._keep([way])
        of_whole.out.fill_(float("nan"))
        try:
            provider.launch(whole.shape, name)(of_whole)
            again = provider.launch(part.shape, name)
        except UnsupportedError:
            continue
        tried += 1
        for _ in range(5):
            of_part.out.fill_(float("nan"))
            again(of_part)
            if not torch.equal(of_part.out, of_whole.out[:520, :1288]):
                wrong.append(name)
                break
    assert not wrong, f"{len(wrong)} of {tried}: {wrong[:5]}"
    assert tried > 100
