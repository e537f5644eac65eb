"""gemm bench on a GPU: all providers are right, and a library stands beside itself."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hillclimb.harness.gemm.bench.bench import Bench, held_gpu, providers_there, worker_command
from hillclimb.harness.gemm.bench.rounds import BenchPlan
from hillclimb.harness.gemm.compiler.cutlass import find_cutlass
from hillclimb.harness.gemm.compiler.machine import default_jobs
from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.store import BuildStore
from hillclimb.harness.gemm.compiler.toolkit import find_toolkit
from hillclimb.harness.gemm.generator.building import KernelBuilding
from hillclimb.harness.gemm.generator.types import chosen_points, refusal
from hillclimb.harness.gemm.providers.cute_dsl import DTYPES
from hillclimb.harness.gemm.results import read_results
from hillclimb.harness.gemm.shape import GemmShape

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu")]

SHAPES = [
    GemmShape("decode", 1, 4096, 14336, "bf16"),
    GemmShape("split", 128, 1280, 8192, "bf16"),
    GemmShape("uneven", 96, 2112, 7168, "f16"),
    GemmShape("long", 512, 4096, 14336, "fp8"),
    GemmShape("whole", 512, 4096, 4096, "int8"),
]


@pytest.mark.timeout(600)
def test_every_provider_is_right_on_every_type(tmp_path: Path) -> None:
    commands = {name: worker_command(name, tmp_path) for name in providers_there(tmp_path)}
    with held_gpu() as gpu:
        run = Bench(tmp_path, commands, gpu, BenchPlan(rounds=7))
        try:
            assert run.run(SHAPES, math.inf, lambda shape, text: None) == []
        finally:
            run.close()
    for path in run.write_results(SHAPES):
        found = read_results(path)
        is_whole = found.provider != "cute_dsl"
        shapes = [shape for shape in SHAPES if is_whole or shape.dtype in DTYPES]
        assert {one.name for one in found.results} == {shape.name for shape in shapes}, path
        assert not [one for one in found.failed if one.status == "incorrect"], path
    for name in ("decode", "split"):
        times = {}
        for provider in ("cublas", "cublaslt"):
            file = read_results(tmp_path / f"{provider}_results.json")
            times[provider] = min(one.runtime_ms for one in file.results if one.name == name)
        assert times["cublaslt"] / times["cublas"] < 1.03


@pytest.mark.timeout(1200)
def test_generated_kernels_are_right(tmp_path: Path) -> None:
    """Both operands on M, both schedules and schedulers, and every way to run them."""
    toolkit, tree = find_toolkit(), find_cutlass(None, tmp_path)
    points = [
        point
        for point in chosen_points("simple_gemm", "hopper", "bf16")
        if point.cluster == (2, 1) and point.tile in {(64, 48, 64), (128, 64, 64)}
    ]
    run = CompileRun(BuildStore(tmp_path / "store", toolkit, tree.headers), default_jobs())
    KernelBuilding(tree, toolkit).build(run, points, tmp_path / "kernels")
    shapes = [SHAPES[0], SHAPES[1], GemmShape("waves", 1024, 4096, 1024, "bf16")]
    commands = {"generated": worker_command("generated", tmp_path / "kernels")}
    with held_gpu() as gpu:
        bench = Bench(tmp_path / "bench", commands, gpu, BenchPlan(rounds=3, finalists=99, near=99.0))
        try:
            assert bench.run(shapes, math.inf, lambda shape, text: None) == []
        finally:
            bench.close()
    (path,) = bench.write_results(shapes)
    found = read_results(path)
    assert not found.failed
    assert {one.kernel.partition("_raster")[0] for one in found.results} == {point.name for point in points}
    assert any(one.kernel.endswith("_pdl") for one in found.results)


@pytest.mark.timeout(1200)
def test_a_kernel_that_hangs_costs_its_own_record_only(tmp_path: Path) -> None:
    """A tile that TMA cannot bring at once, forced past the rules."""
    toolkit, tree = find_toolkit(), find_cutlass(None, tmp_path)
    sound = next(
        point
        for point in chosen_points("simple_gemm", "hopper", "bf16")
        if point.tile == (128, 64, 64) and point.cluster == (1, 1) and point.schedule == "cooperative"
    )
    hanging = sound.model_copy(update={"tile": (128, 320, 64)})
    assert not refusal(sound) and refusal(hanging).endswith("it would hang")
    run = CompileRun(BuildStore(tmp_path / "store", toolkit, tree.headers), default_jobs())
    KernelBuilding(tree, toolkit).build(run, [hanging, sound], tmp_path / "kernels")
    commands = {name: worker_command(name, tmp_path / "kernels") for name in ("cublas", "generated")}
    with held_gpu() as gpu:
        bench = Bench(tmp_path / "bench", commands, gpu, BenchPlan(rounds=3), seconds_each=10)
        try:
            assert bench.run(SHAPES[1:2], math.inf, lambda shape, text: None) == []
        finally:
            bench.close()
    library, own = (read_results(path) for path in bench.write_results(SHAPES[1:2]))
    assert library.results and not library.failed
    assert {one.kernel.partition("_raster")[0] for one in own.results} == {sound.name}
    assert {one.kernel.partition("_raster")[0] for one in own.failed} == {hanging.name}
    assert own.failed[0].status == "timed_out"
