"""Rows of cutlass_profiler as a provider's results: the fast and right ones, and why the others are not among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hillclimb.harness.gemm.profiler_output import RIGHT, ProfilerRow
from hillclimb.harness.gemm.results import Failed, FailureStatus, GpuCard, Measured, Product
from hillclimb.harness.gemm.shape import Dtype, GemmShape

DTYPES: dict[str, Dtype] = {"bf16": "bf16", "f16": "f16", "e4m3": "fp8", "fe4m3": "fp8", "s8": "int8"}
"""By the profiler's names of an operand's elements."""

UNSUPPORTED = ("not_supported", "not_run", "error_not_supported", "error_arch_mismatch")
"""Status or disposition of a kernel that cannot run the problem."""


def to_results(
    rows: Iterable[ProfilerRow], shapes: Sequence[GemmShape], gpu: GpuCard
) -> tuple[list[Measured], list[Failed]]:
    """Of these shapes. A time that the card cannot have is a failure, as is a wrong result."""
    names = {shape.named(""): shape.name for shape in shapes}
    measured: list[Measured] = []
    failed: list[Failed] = []
    for row in rows:
        shape = shape_of(row)
        if shape is None or shape not in names:
            continue
        product = Product(
            name=names[shape], m=shape.m, n=shape.n, k=shape.k, dtype=shape.dtype, groups=shape.groups
        )
        outcome = _outcome(row, product, gpu)
        if isinstance(outcome, Failed):
            failed.append(outcome)
        else:
            measured.append(outcome)
    return measured, failed


def shape_of(row: ProfilerRow) -> GemmShape | None:
    """What it multiplied; None where the row does not say, or is of other elements than those of GemmShape."""
    sizes, element = row.sizes, row.arguments.get("A", "").partition(":")[0]
    if sizes is None or element not in DTYPES or 0 in sizes:
        return None
    return GemmShape("", *sizes, DTYPES[element])


def _outcome(row: ProfilerRow, product: Product, gpu: GpuCard) -> Measured | Failed:
    known = product.model_dump()
    if not row.may_win or row.runtime_ms is None:
        status = _failure(row)
        reason = f"status {row.status}, disposition {row.disposition}, Runtime {row.arguments.get('Runtime')}"
        return Failed(**known, kernel=row.operation, status=status, reason=reason)
    found = Measured(
        **known,
        kernel=row.operation,
        runtime_ms=row.runtime_ms,
        statistic="mean",
        is_checked=row.disposition == RIGHT,
    )
    if found.achieved_tflops > gpu.peak_tflops(found.dtype):
        reason = f"{found.achieved_tflops:.6g} TFLOP/s; the card has {gpu.peak_tflops(found.dtype):g}"
        return Failed(**known, kernel=row.operation, status="impossible", reason=reason)
    return found


def _failure(row: ProfilerRow) -> FailureStatus:
    if row.disposition == "incorrect":
        return "incorrect"
    if row.status in UNSUPPORTED or row.disposition in UNSUPPORTED:
        return "unsupported"
    return "impossible" if row.status == "success" and row.disposition != "failed" else "failed"
