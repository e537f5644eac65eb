"""What a claim hands to a case: the same kernel as the bench had, under knobs that are limited as the kernels are."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.claims.claim import (
    LIKELY,
    ClaimedKernel,
    device_source,
    find_claim,
    kernel_named,
    knob_values,
)
from hillclimb.harness.gemm.claims.won import won_kernel
from hillclimb.harness.gemm.families.point import CLUSTERS, MAX_CLUSTER
from hillclimb.harness.gemm.families.run_option import RunOption, way_name
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.families.warpgroup_rules import steps
from hillclimb.harness.gemm.families.warpgroup_source import values
from hillclimb.harness.gemm.generator.types import chosen_points, refusal
from hillclimb.harness.gemm.providers.cublaslt_algorithms import Algorithm
from hillclimb.harness.gemm.providers.ways import further_options
from hillclimb.harness.gemm.results import GpuCard, Measured, Product, ProviderResults
from hillclimb.harness.gemm.shape import Dtype, GemmShape
from hillclimb.harness.knobs.knobs import (
    KnobValue,
    broken_constraint,
    load_knobs,
    replace_defaults,
    to_environment,
)
from tests.cases.workspace import CASES

WORKSPACE = CASES / "_template_gemm" / "workspace"
KNOBS = load_knobs(WORKSPACE / "knobs.yaml")
DTYPES: tuple[Dtype, ...] = ("bf16", "f16")
MAX_STEPS = 16
SHAPE = GemmShape("qkv_m16_n6144_k4096", 16, 6144, 4096, "bf16")
NAME = "warpgroup_gemm_bf16_64x8x128_1x1_split4_once_by1_features_1x1_raster2_fetch128_first_last_pdl"
OTHER = "warpgroup_gemm_bf16_64x16x64_1x1_split1_once_by1_features_2x1_raster1"


def family(dtype: Dtype) -> list[WarpgroupPoint]:
    return [
        one for one in chosen_points("warpgroup_gemm", "hopper", dtype) if isinstance(one, WarpgroupPoint)
    ]


def workspace(folder: Path, claim: ClaimedKernel) -> Path:
    """The template's, filled as far as its kernel goes."""
    folder.mkdir(exist_ok=True)
    for path in WORKSPACE.glob("*.*"):
        (folder / path.name).write_text(path.read_text().replace("{{dtype}}", claim.shape.dtype))
    (folder / "knobs.py").write_text((CASES / "_template" / "workspace" / "knobs.py").read_text())
    (folder / "gemm.cu").write_text(device_source(claim.shape.dtype))
    knobs = folder / "knobs.yaml"
    knobs.write_text(replace_defaults(knobs.read_text(), claim.knobs))
    return folder


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """plan.py by dtype."""
    found = {}
    for dtype in DTYPES:
        folder = workspace(tmp_path_factory.mktemp(dtype), claim_of(family(dtype)[0]))
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(folder))
            patch.delitem(sys.modules, "plan", raising=False)
            found[dtype] = importlib.import_module("plan")
            patch.delitem(sys.modules, "plan")
    return found


def claim_of(point: WarpgroupPoint, option: RunOption | None = None) -> ClaimedKernel:
    shape = GemmShape("a", 16, 4096, 4096, point.dtype)
    return ClaimedKernel(shape, point.name, point, option or RunOption(raster=1), "")


def plan_of(plans: dict[str, ModuleType], point: WarpgroupPoint) -> ModuleType:
    knobs = knob_values(point, RunOption(raster=1))
    return plans[point.dtype].Plan(
        rows=knobs["GEMM_ROWS"],
        columns=knobs["GEMM_COLUMNS"],
        consumers=(knobs["GEMM_CONSUMERS_DOWN"], knobs["GEMM_CONSUMERS_ACROSS"]),
        slices=knobs["GEMM_SLICES"],
        splits=knobs["GEMM_SPLITS"],
        is_persistent=knobs["GEMM_PERSISTENT"],
        blocks=knobs["GEMM_BLOCKS"],
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_workspace_has_the_plans_and_instructions_of_the_generator(
    plans: dict[str, ModuleType], dtype: Dtype
) -> None:
    for point in family(dtype):
        if refusal(point):
            continue
        known = values([point])
        plan = plan_of(plans, point)
        source = plan.source()
        ((own,), (instruction,)) = known["kernels"], known["instructions"]  # type: ignore[misc]
        assert f"Plan<{own['plan']}>" in source
        assert plan.steps == min(steps(point), MAX_STEPS)
        words = re.sub(r'"\s*"', "", source)
        assert f"wgmma.mma_async.sync.aligned.{instruction['kind']} {{{instruction['sums']}}}, " in words
        assert f"{instruction['rest']};" in words and f"p, {instruction['flag']}, 0;" in words
        assert f": {instruction['outputs']}\n" in source


options = st.builds(
    RunOption,
    raster=st.sampled_from([1, 2]),
    is_dependent=st.booleans(),
    rows=st.sampled_from(["tokens", "features"]),
    cluster=st.sampled_from(CLUSTERS),
)


@settings(max_examples=300)
@given(st.sampled_from([one for dtype in DTYPES for one in family(dtype) if not refusal(one)]), options)
def test_every_kernel_that_may_run_may_be_claimed(point: WarpgroupPoint, option: RunOption) -> None:
    for way in (option, *further_options(point, option)):
        blocks = way.cluster[0] * way.cluster[1] * point.splits
        may_run = blocks <= MAX_CLUSTER and point.tile[1] % (8 * way.cluster[0]) == 0
        broken = broken_constraint(KNOBS, knob_values(point, way))
        assert (broken is None) == may_run, (broken, point.name, way)
        name = way_name(point, way)
        if may_run:
            assert kernel_named(name) == (point, way)
            assert won_kernel(point.dtype, knob_values(point, way)) == name


def test_a_flexible_kernel_is_claimed_as_what_it_is_run_as() -> None:
    name = "warpgroup_gemm_bf16_128x96x64_2x1_flexible_by1_tokens_2x1_raster2_splits2_steps3_pdl"
    fixed = "warpgroup_gemm_bf16_128x96x64_2x1_split2_once_by1_tokens_2x1_raster2_steps3_pdl"
    assert kernel_named(name) == kernel_named(fixed)
    assert won_kernel("bf16", knob_values(*kernel_named(name))) == fixed


@dataclass(frozen=True)
class Drawn:
    """A setting of the knobs that make a kernel, and the point of it."""

    knobs: dict[str, KnobValue]
    point: WarpgroupPoint


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    knobs: dict[str, KnobValue] = {
        name: draw(st.sampled_from(list(knob.values() or ()))) for name, knob in KNOBS.items()
    }
    knobs |= {"GEMM_CLUSTER_DOWN": 1, "GEMM_CLUSTER_ACROSS": 1, "GEMM_STEPS": 0}
    point = WarpgroupPoint.model_validate(
        {
            "dtype": "bf16",
            "tile": (knobs["GEMM_ROWS"], knobs["GEMM_COLUMNS"], 64 * int(knobs["GEMM_SLICES"])),
            "consumers": (knobs["GEMM_CONSUMERS_DOWN"], knobs["GEMM_CONSUMERS_ACROSS"]),
            "splits": knobs["GEMM_SPLITS"],
            "is_persistent": knobs["GEMM_PERSISTENT"],
            "blocks": knobs["GEMM_BLOCKS"],
        }
    )
    return Drawn(knobs, point)


@settings(max_examples=1000)
@given(drawn())
def test_a_setting_is_allowed_where_the_family_has_a_kernel(one: Drawn) -> None:
    assert (broken_constraint(KNOBS, one.knobs) is None) == (refusal(one.point) == ""), refusal(one.point)


@settings(max_examples=1000)
@given(drawn())
def test_whatever_a_sweep_ends_with_has_a_name(one: Drawn) -> None:
    """In the set of the generator or not; what may not be built is refused."""
    if refusal(one.point):
        with pytest.raises(UsageError, match="no kernel is generated for these knobs"):
            won_kernel("bf16", one.knobs)
        return
    point, option = kernel_named(won_kernel("bf16", one.knobs))
    assert point == one.point and knob_values(point, option) == one.knobs


def test_knobs_that_no_generated_kernel_has_are_told() -> None:
    knobs = knob_values(*kernel_named(NAME))
    for spoilt in ({"GEMM_RASTER": "spiral"}, {"GEMM_FETCH": 64}):
        with pytest.raises(UsageError, match="the knobs are not what this version's claims have"):
            won_kernel("bf16", {**knobs, **spoilt})
    del knobs["GEMM_PDL"]
    with pytest.raises(UsageError, match="'GEMM_PDL'"):
        won_kernel("bf16", knobs)


def results(
    *times: tuple[str, float], provider: str = "generated", shape: GemmShape = SHAPE
) -> ProviderResults:
    known = Product.of(shape).model_dump()
    measured = tuple(Measured(**known, kernel=kernel, runtime_ms=time) for kernel, time in times)
    return ProviderResults(
        schema=1, provider=provider, gpu=GpuCard(name="NVIDIA H200"), cache="cold", results=measured
    )


def test_the_best_kernel_of_the_family_is_claimed() -> None:
    own = results((OTHER, 0.030), (NAME, 0.020), ("simple_gemm_bf16_x", 0.019), (NAME + "_x", 1e-5))
    claim = find_claim(own, SHAPE.name, [results(("cublas", 0.025), provider="cublas")])
    assert (claim.kernel, claim.case, claim.shape) == (NAME, "qkv_m16_n6144_k4096_bf16", SHAPE)
    assert (
        claim.told
        == "On an NVIDIA H200 the kernel took 20 us a call. cublas took 25 us, 1.250 times as long."
    )
    wanted = {
        "GEMM_TOKENS": "columns",
        "GEMM_COLUMNS": 8,
        "GEMM_SLICES": 2,
        "GEMM_SPLITS": 4,
        "GEMM_FETCH": 128,
    }
    wanted |= {"GEMM_RASTER": "columns", "GEMM_ROWS_CACHE": "first", "GEMM_COLUMNS_CACHE": "last"}
    assert wanted.items() <= claim.knobs.items() and claim.knobs["GEMM_PDL"] is True
    assert set(claim.knobs) == set(KNOBS)
    assert find_claim(own, SHAPE.name).told == "On an NVIDIA H200 the kernel took 20 us a call."


sizes = st.integers(1, 1 << 14)


@settings(max_examples=8, deadline=None)
@given(sizes, sizes, sizes, st.sampled_from(DTYPES), options)
def test_likely_kernels_may_run_and_keep_hints_and_order(
    m: int, n: int, k: int, dtype: Dtype, option: RunOption
) -> None:
    start = replace(option, caches=(1, 2), promotion=1)
    shape = GemmShape("a", m, 8 * n, 8 * k, dtype)
    likely = ClaimedKernel(shape, "", family(dtype)[0], start, "").likely
    assert len(likely) == len({tuple(one.values()) for one in likely}) <= LIKELY
    of = {"tokens": "rows", "features": "columns"}
    for one in likely:
        assert set(one) == set(KNOBS) and broken_constraint(KNOBS, one) is None
        assert (one["GEMM_PDL"], one["GEMM_FETCH"]) == (option.is_dependent, 128)
        is_turned = one["GEMM_TOKENS"] != of[option.rows]
        hints = ("last", "first") if is_turned else ("first", "last")
        assert (one["GEMM_ROWS_CACHE"], one["GEMM_COLUMNS_CACHE"]) == hints
        assert one["GEMM_RASTER"] == ("rows" if (option.raster == 1) != is_turned else "columns")


def test_the_model_knows_what_was_fast() -> None:
    """On an H200 these were the best of 118 ways to run 66 kernels. None had few tokens on the rows."""
    for m, n, k, tokens, rows, columns in (
        (8, 2560, 5120, "columns", 64, 8),
        (1, 4096, 4096, "columns", 64, 8),
        (4096, 1280, 8192, "rows", 256, 160),
    ):
        shape = GemmShape("a", m, n, k, "bf16")
        likely = ClaimedKernel(shape, "", family("bf16")[0], RunOption(raster=1), "").likely
        timed = [one for one in likely if one["GEMM_TOKENS"] == tokens or m > 32]
        assert (rows, columns) in [(one["GEMM_ROWS"], one["GEMM_COLUMNS"]) for one in timed[:4]]
        assert any(one["GEMM_TOKENS"] != tokens for one in likely)


def test_of_cublaslt_the_fastest_algorithm_is_claimed_with_its_version() -> None:
    own, cublas = results((NAME, 0.020)), results(("cublas", 0.025), provider="cublas")
    times = (("heuristic_0", 0.024), ("64x128_2x1_of_1", 0.022), ("128x128_1x1_of_0", 0.023))
    timed = results(*times, provider="cublaslt").model_copy(update={"software": {"cublaslt": "130100"}})
    claim = find_claim(own, SHAPE.name, [cublas, timed])
    assert claim.cublaslt == (Algorithm(answer=1, tile=17, cluster=3), "130100", "NVIDIA H200")
    assert claim.told.endswith(
        "cublas took 25 us, 1.250 times as long. cublaslt took 22 us, 1.100 times as long."
    )
    assert find_claim(own, SHAPE.name, [cublas]).cublaslt is None
    faster = results(("heuristic_3", 0.021), provider="cublaslt").model_copy(
        update={"software": {"cublaslt": "130200"}}
    )
    both = find_claim(own, SHAPE.name, [timed, faster]).cublaslt
    assert both is not None and (both.algorithm.answer, both.version) == (3, "130200")
    nameless = results(("heuristic_0", 0.02), provider="cublaslt")
    assert find_claim(own, SHAPE.name, [nameless]).cublaslt is None, "its version is not known"
    with pytest.raises(UsageError, match="x is no algorithm of cuBLASLt"):
        find_claim(own, SHAPE.name, [timed.model_copy(update={"results": results(("x", 0.02)).results})])


def test_what_cannot_be_claimed_is_told() -> None:
    with pytest.raises(UsageError, match=r"no shape 'qkv_m16': .*qkv_m16_n6144_k4096"):
        find_claim(results((NAME, 0.02)), "qkv_m16")
    fp8 = NAME.replace("bf16", "fp8")
    for kernel, shape in (
        ("simple_gemm_bf16_x", SHAPE),
        (NAME, replace(SHAPE, dtype="f16")),
        (NAME, replace(SHAPE, groups=8)),
        (fp8, replace(SHAPE, dtype="fp8")),
    ):
        with pytest.raises(UsageError, match="has no time of a warpgroup_gemm kernel in bf16 or f16"):
            find_claim(results((kernel, 0.02), shape=shape), SHAPE.name)
    with pytest.raises(UsageError, match="the results are of cublas; a claim takes those of generated"):
        find_claim(results((NAME, 0.02), provider="cublas"), SHAPE.name)
    f16 = results((NAME.replace("bf16", "f16"), 0.02), shape=replace(SHAPE, dtype="f16"))
    two = results((NAME, 0.02))
    with pytest.raises(UsageError, match="is the name of several shapes"):
        find_claim(two.model_copy(update={"results": two.results + f16.results}), SHAPE.name)
    assert find_claim(f16, SHAPE.name).case == "qkv_m16_n6144_k4096_f16"
    hot = results(("cublas", 0.025), provider="cublas").model_copy(update={"cache": "hot"})
    for baseline, told in (
        (hot, "cannot be compared: generated is unlike: cache is cold, the baseline's hot"),
        (results(provider="cublas"), "cannot be compared: cublas is missing"),
        (results((OTHER, 0.1)), "the baseline is of generated, too"),
    ):
        with pytest.raises(UsageError, match=told):
            find_claim(results((NAME, 0.02)), SHAPE.name, [baseline])
    for name in (NAME + "x", NAME.replace("x128_", "x12_"), "warpgroup_gemm_bf16"):
        with pytest.raises(UsageError, match="is no kernel of warpgroup_gemm that can be built"):
            kernel_named(name)


SETTINGS: list[dict[str, KnobValue]] = [
    {
        "GEMM_PERSISTENT": True,
        "GEMM_ROWS": 256,
        "GEMM_COLUMNS": 176,
        "GEMM_CONSUMERS_DOWN": 2,
        "GEMM_SPLITS": 1,
    },
    {"GEMM_BLOCKS": 2, "GEMM_COLUMNS": 40},
]


@pytest.mark.slow(10)
@pytest.mark.parametrize(("dtype", "one"), [("bf16", {}), ("bf16", SETTINGS[0]), ("f16", SETTINGS[1])])
def test_a_workspace_compiles(tmp_path: Path, dtype: Dtype, one: dict[str, KnobValue]) -> None:
    """Without a GPU: NVRTC makes the code when the kernel is imported."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings with NVRTC")
    point = next(one for one in family(dtype) if one.splits == 8 and not refusal(one))
    folder = workspace(tmp_path / "w", claim_of(point))
    assert broken_constraint(KNOBS, claim_of(point).knobs | one) is None
    done = subprocess.run(
        [sys.executable, "-c", "import kernel; print(kernel.PLAN.steps)"],
        env={**os.environ, **to_environment(one), "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and int(done.stdout) >= 2, done.stderr[-3000:]
