"""What a climb of a claim ended with, under the name that a bench has for it."""

from __future__ import annotations

from collections.abc import Mapping

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.claims.claim import FETCHES, RASTERS
from hillclimb.harness.gemm.families.point import SLICE_BYTES
from hillclimb.harness.gemm.families.run_option import CACHES, RunOption, way_name
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.generator.types import refusal
from hillclimb.harness.gemm.shape import ITEM_BYTES, Dtype
from hillclimb.harness.knobs.knobs import KnobValue


def won_kernel(dtype: Dtype, knobs: Mapping[str, KnobValue]) -> str:
    """The generated kernel with its way to run it, by the values of a workspace's knobs.

    Raises UsageError for knobs that are others than a claim's, or say what cannot be built.
    """
    try:
        point, option = _point(dtype, knobs), _option(knobs)
    except (KeyError, ValueError) as error:
        raise UsageError(f"the knobs are not what this version's claims have: {error}") from None
    if told := refusal(point):
        raise UsageError(f"no kernel is generated for these knobs: {told}")
    return way_name(point, option)


def _point(dtype: Dtype, knobs: Mapping[str, KnobValue]) -> WarpgroupPoint:
    return WarpgroupPoint(
        dtype=dtype,
        tile=(
            int(knobs["GEMM_ROWS"]),
            int(knobs["GEMM_COLUMNS"]),
            int(knobs["GEMM_SLICES"]) * SLICE_BYTES // ITEM_BYTES[dtype],
        ),
        consumers=(int(knobs["GEMM_CONSUMERS_DOWN"]), int(knobs["GEMM_CONSUMERS_ACROSS"])),
        splits=int(knobs["GEMM_SPLITS"]),
        is_persistent=bool(knobs["GEMM_PERSISTENT"]),
        blocks=int(knobs["GEMM_BLOCKS"]),
    )


def _option(knobs: Mapping[str, KnobValue]) -> RunOption:
    rasters = {word: number for number, word in RASTERS.items()}
    caches = {word: number for number, word in CACHES.items()}
    first, second = (str(knobs[f"GEMM_{side}_CACHE"]) for side in ("ROWS", "COLUMNS"))
    return RunOption(
        raster=rasters[str(knobs["GEMM_RASTER"])],
        is_dependent=bool(knobs["GEMM_PDL"]),
        rows="tokens" if knobs["GEMM_TOKENS"] == "rows" else "features",
        cluster=(int(knobs["GEMM_CLUSTER_DOWN"]), int(knobs["GEMM_CLUSTER_ACROSS"])),
        swizzle=int(knobs["GEMM_SWIZZLE"]),
        steps=int(knobs["GEMM_STEPS"]),
        caches=(caches[first], caches[second]),
        promotion=FETCHES.index(int(knobs["GEMM_FETCH"])),
    )
