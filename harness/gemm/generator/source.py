"""Sources of kernels, by templates: as many alike in one file as share most of what a compiler does for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from hillclimb.harness.gemm.generator.point import KernelPoint
from hillclimb.harness.gemm.generator.types import TEMPLATES, generator_type
from hillclimb.harness.gemm.shape import Dtype

if TYPE_CHECKING:
    from jinja2 import Environment

ALIKE = 12
"""Kernels of one file."""

OPERANDS: dict[Dtype, str] = {
    "bf16": "cutlass::bfloat16_t",
    "f16": "cutlass::half_t",
    "fp8": "cutlass::float_e4m3_t",
    "int8": "int8_t",
}
RESULTS: dict[Dtype, str] = {**OPERANDS, "fp8": "cutlass::bfloat16_t", "int8": "int32_t"}
SUMS: dict[Dtype, str] = {"bf16": "float", "f16": "float", "fp8": "float", "int8": "int32_t"}

MAINLOOPS = {
    "basic": "KernelTmaWarpSpecialized",
    "pingpong": "KernelTmaWarpSpecializedPingpong",
    "cooperative": "KernelTmaWarpSpecializedCooperative",
}
FAST_SUMS = "FP8FastAccum"
EPILOGUES = {"single": "TmaWarpSpecialized", "shared": "TmaWarpSpecializedCooperative"}
SCHEDULERS = {"persistent": "PersistentScheduler", "stream_k": "StreamKScheduler"}


def grouped(points: Iterable[KernelPoint]) -> list[tuple[KernelPoint, ...]]:
    """Files: kernels that differ in their cluster only, twelve at the most."""
    alike: dict[tuple[object, ...], list[KernelPoint]] = {}
    for point in points:
        key = (
            point.generator,
            point.dtype,
            point.tile,
            point.schedule,
            point.epilogue,
            point.scheduler,
            point.rows,
        )
        alike.setdefault(key, []).append(point)
    return [tuple(group[at : at + ALIKE]) for group in alike.values() for at in range(0, len(group), ALIKE)]


def render(points: Sequence[KernelPoint]) -> str:
    """The source of one file. All of its kernels have the same generator, dtype, scheduler and operand on M."""
    kind = generator_type(points[0].generator)
    values = _values(points)
    prototypes = _environment().get_template(kind.prototype_template).render(values)
    return _environment().get_template(kind.kernel_template).render(values, prototypes=prototypes)


def _values(points: Sequence[KernelPoint]) -> Mapping[str, Any]:
    first = points[0]
    return {
        "operand": OPERANDS[first.dtype],
        "result": RESULTS[first.dtype],
        "sum": SUMS[first.dtype],
        "result_layout": "RowMajor" if first.rows == "tokens" else "ColumnMajor",
        "can_launch_dependent": first.scheduler != "stream_k",
        "kernels": [_kernel(point) for point in points],
    }


def _kernel(point: KernelPoint) -> Mapping[str, Any]:
    fast = FAST_SUMS if point.dtype == "fp8" else ""
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


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
