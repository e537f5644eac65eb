"""What the templates of CUTLASS's collectives are filled with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.shape import Dtype, stored

OPERANDS: dict[Dtype, str] = {
    "bf16": "cutlass::bfloat16_t",
    "f16": "cutlass::half_t",
    "fp8": "cutlass::float_e4m3_t",
    "int8": "int8_t",
}
RESULTS: dict[Dtype, str] = {
    "bf16": "cutlass::bfloat16_t",
    "f16": "cutlass::half_t",
    "fp8": "cutlass::bfloat16_t",
    "int8": "int32_t",
    "scaled_fp8": "cutlass::bfloat16_t",
    "scaled_int8": "cutlass::bfloat16_t",
}

MAINLOOPS = {
    "basic": "KernelTmaWarpSpecialized",
    "pingpong": "KernelTmaWarpSpecializedPingpong",
    "cooperative": "KernelTmaWarpSpecializedCooperative",
}
FAST_SUMS = "FP8FastAccum"
EPILOGUES = {"single": "TmaWarpSpecialized", "shared": "TmaWarpSpecializedCooperative"}
SCHEDULERS = {"persistent": "PersistentScheduler", "stream_k": "StreamKScheduler"}


def values(points: Sequence[CollectivePoint]) -> Mapping[str, object]:
    """Of one file. All of its kernels have the same dtype, scheduler and operand on M."""
    first = points[0]
    return {
        "operand": OPERANDS[stored(first.dtype)],
        "result": RESULTS[first.dtype],
        "sum": "int32_t" if stored(first.dtype) == "int8" else "float",
        "result_layout": "RowMajor" if first.rows == "tokens" else "ColumnMajor",
        "can_launch_dependent": first.scheduler != "stream_k",
        "kernels": [_kernel(point) for point in points],
    }


def _kernel(point: CollectivePoint) -> Mapping[str, object]:
    fast = FAST_SUMS if stored(point.dtype) == "fp8" else ""
    return {
        "name": point.name,
        "tile": point.tile,
        "cluster": point.cluster,
        "mainloop": MAINLOOPS[point.schedule] + fast,
        "epilogue": EPILOGUES[point.epilogue],
        "scheduler": SCHEDULERS[point.scheduler],
        "is_persistent": str(point.schedule != "basic").lower(),
        "is_stream_k": str(point.scheduler == "stream_k").lower(),
    }
