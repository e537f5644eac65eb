"""A generated kernel that was the best of a shape, as the start of a case: source, knobs, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.comparison import compare
from hillclimb.harness.gemm.families.point import SLICE_BYTES
from hillclimb.harness.gemm.families.run_option import (
    ALONG_COLUMNS,
    ALONG_ROWS,
    CACHES,
    RunOption,
    as_run,
)
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.families.warpgroup_source import device_values
from hillclimb.harness.gemm.generator.source import render_template
from hillclimb.harness.gemm.generator.types import chosen_points, refusal, way_named
from hillclimb.harness.gemm.providers.cublaslt_algorithms import PROVIDER as PROVIDER_CUBLASLT
from hillclimb.harness.gemm.providers.cublaslt_algorithms import Algorithm, algorithm_named
from hillclimb.harness.gemm.providers.ways import run_options, way_seconds
from hillclimb.harness.gemm.results import GENERATED, Measured, ProviderResults
from hillclimb.harness.gemm.shape import ITEM_BYTES, Dtype, GemmShape
from hillclimb.harness.knobs.knobs import KnobValue
from hillclimb.harness.wording import suggestion

FAMILY = "warpgroup_gemm"
TEMPLATE = "warpgroup_claim.cu.jinja"
RASTERS = {ALONG_ROWS: "rows", ALONG_COLUMNS: "columns"}
FETCHES = (256, 128)
LIKELY = 32
"""Kernels that a sweep tries first, each in its likeliest way."""

DTYPES: tuple[Dtype, ...] = ("bf16", "f16")
"""Sums of fp8 have fewer bits in the tensor cores than float32, which the case's contract has no budget for."""


class CublasLtChoice(NamedTuple):
    """The algorithm of cuBLASLt that was fastest, the version of the library that knows it, and the card's name."""

    algorithm: Algorithm
    version: str
    gpu: str


@dataclass(frozen=True)
class ClaimedKernel:
    """One shape, and the kernel that it starts from."""

    shape: GemmShape
    kernel: str
    point: WarpgroupPoint
    option: RunOption
    told: str
    """What was measured, in sentences."""
    cublaslt: CublasLtChoice | None = None
    """None where no baseline has a time of cuBLASLt."""

    @property
    def case(self) -> str:
        """Name of the case's folder."""
        return f"{self.shape.name}_{self.shape.dtype}"

    @property
    def knobs(self) -> dict[str, KnobValue]:
        """What the case's knobs have to be for this kernel."""
        return knob_values(self.point, self.option)

    @property
    def likely(self) -> list[dict[str, KnobValue]]:
        """Knob values of the kernels that the cost model takes for the fastest, best first, LIKELY of them at most.

        The model is fitted to an H200. It knows nothing of cache hints, and little of the order of tiles, which goes
        with them: those of the start are kept.
        """
        found: dict[str, tuple[float, WarpgroupPoint, RunOption]] = {}
        for point in family_points(self.shape.dtype):
            for option in run_options(point, self.shape, pdl=self.option.is_dependent):
                seconds = way_seconds(point, option, self.shape)
                if point.name not in found or seconds < found[point.name][0]:
                    found[point.name] = seconds, point, self._with_hints(option)
        best = sorted(found.values(), key=lambda one: one[0])[:LIKELY]
        return [knob_values(point, option) for _, point, option in best]

    def _with_hints(self, option: RunOption) -> RunOption:
        own = self.option
        caches, raster = own.caches, own.raster
        if option.rows != own.rows:
            caches, raster = (caches[1], caches[0]), ALONG_ROWS + ALONG_COLUMNS - raster
        return replace(option, caches=caches, raster=raster, promotion=own.promotion)


def find_claim(
    results: ProviderResults, name: str, baselines: Sequence[ProviderResults] = ()
) -> ClaimedKernel:
    """The best kernel of this family for the shape of this name, and what other providers' best took for it.

    Raises UsageError for results of another provider, for a shape that is not there, that has no such kernel or is of
    another dtype than DTYPES, and for a baseline that has no time to compare.
    """
    if results.provider != GENERATED:
        raise UsageError(f"the results are of {results.provider}; a claim takes those of {GENERATED}")
    names = {one.name for one in results.results}
    if name not in names:
        raise UsageError(f"the results have no shape {name!r}: {suggestion(name, names)}")
    own = [one for one in results.possible() if one.name == name and _may_be_claimed(one)]
    if not own:
        kinds = " or ".join(DTYPES)
        raise UsageError(
            f"{name} has no time of a {FAMILY} kernel in {kinds}; `hillclimb gemm bench` takes them"
        )
    if len({one.shape for one in own}) > 1:
        raise UsageError(f"{name} is the name of several shapes; give a file with one of them")
    best = min(own, key=lambda one: one.rank_ms)
    point, option = kernel_named(best.kernel)
    told = f"On an {results.gpu.name} the kernel took {1e3 * best.runtime_ms:.4g} us a call."
    told = " ".join([told, *(_compared(results, best, baseline) for baseline in baselines)])
    return ClaimedKernel(
        best.shape.named(name), best.kernel, point, option, told, _cublaslt(baselines, best.shape)
    )


def _may_be_claimed(one: Measured) -> bool:
    return one.groups == 1 and one.dtype in DTYPES and one.kernel.startswith(f"{FAMILY}_{one.dtype}_")


def kernel_named(name: str) -> tuple[WarpgroupPoint, RunOption]:
    """What a name of a bench stands for, a flexible kernel as a fixed one.

    Raises UsageError for one that stands for nothing.
    """
    found = way_named(name)
    if found is None or not isinstance(found[0], WarpgroupPoint):
        raise UsageError(f"{name} is no kernel of {FAMILY} that can be built")
    return as_run(found[0], found[1]), replace(found[1], splits=1, is_persistent=False)


def device_source(dtype: Dtype) -> str:
    """gemm.cu of a claim."""
    return render_template(TEMPLATE, device_values(dtype, ())) + "\n"


def family_points(dtype: Dtype) -> list[WarpgroupPoint]:
    """All that can be built."""
    points = chosen_points(FAMILY, "hopper", dtype)
    return [one for one in points if isinstance(one, WarpgroupPoint) and not refusal(one)]


def knob_values(point: WarpgroupPoint, option: RunOption) -> dict[str, KnobValue]:
    """As the case's knobs.yaml names them."""
    rows, columns, inner = point.tile
    return {
        "GEMM_TOKENS": "rows" if option.rows == "tokens" else "columns",
        "GEMM_ROWS": rows,
        "GEMM_COLUMNS": columns,
        "GEMM_CONSUMERS_DOWN": point.consumers[0],
        "GEMM_CONSUMERS_ACROSS": point.consumers[1],
        "GEMM_SLICES": inner * ITEM_BYTES[point.dtype] // SLICE_BYTES,
        "GEMM_STEPS": option.steps,
        "GEMM_SPLITS": point.splits,
        "GEMM_PERSISTENT": point.is_persistent,
        "GEMM_BLOCKS": point.blocks,
        "GEMM_CLUSTER_DOWN": option.cluster[0],
        "GEMM_CLUSTER_ACROSS": option.cluster[1],
        "GEMM_RASTER": RASTERS.get(option.raster, "rows"),
        "GEMM_SWIZZLE": option.swizzle,
        "GEMM_FETCH": FETCHES[option.promotion],
        "GEMM_ROWS_CACHE": CACHES[option.caches[0]],
        "GEMM_COLUMNS_CACHE": CACHES[option.caches[1]],
        "GEMM_PDL": option.is_dependent,
    }


def _cublaslt(baselines: Sequence[ProviderResults], shape: GemmShape) -> CublasLtChoice | None:
    """The fastest of all baselines that say of which version and on which card it is."""
    known = [
        (one, version, file.gpu.name)
        for file in baselines
        if file.provider == PROVIDER_CUBLASLT and (version := file.software.get(PROVIDER_CUBLASLT))
        for one in file.possible()
        if one.shape == shape
    ]
    if not known:
        return None
    fastest, version, gpu = min(known, key=lambda one: one[0].rank_ms)
    return CublasLtChoice(algorithm_named(fastest.kernel), version, gpu)


def _compared(results: ProviderResults, best: Measured, baseline: ProviderResults) -> str:
    if baseline.provider == results.provider:
        raise UsageError(f"the baseline is of {baseline.provider}, too; give another provider's results")
    base, own = (
        file.model_copy(update={"results": tuple(of_shape), "failed": ()})
        for file, of_shape in (
            (baseline, [one for one in baseline.results if one.shape == best.shape]),
            (results, [best]),
        )
    )
    comparison = compare(base, [own])
    if comparison.gaps:
        gap = comparison.gaps[0]
        raise UsageError(f"{best.name} cannot be compared: {gap.provider} is {gap.kind}: {gap.detail}")
    cells = comparison.shapes[0].cells
    time, speedup = cells[base.provider].runtime_ms, cells[own.provider].speedup
    return f"{base.provider} took {1e3 * time:.4g} us, {speedup:.3f} times as long."


def values_of(claim: ClaimedKernel) -> Mapping[str, str]:
    """What the case's template is filled with, beside the names of the case."""
    shape, cublaslt = claim.shape, claim.cublaslt or CublasLtChoice(Algorithm(0), "", "")
    return {
        "m": str(shape.m),
        "n": str(shape.n),
        "k": str(shape.k),
        "dtype": shape.dtype,
        "baseline": claim.told,
        "kernel": claim.kernel,
        "cublaslt_version": cublaslt.version,
        "gpu": cublaslt.gpu,
        "answer": str(cublaslt.algorithm.answer),
        "tile": str(cublaslt.algorithm.tile),
        "cluster": str(cublaslt.algorithm.cluster),
    }
