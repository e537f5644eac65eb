"""Rows of cutlass_profiler as a provider's results: the fast and right ones, and why the others are not among them."""

from __future__ import annotations

from hillclimb.harness.gemm.profiler.command import ELEMENTS
from hillclimb.harness.gemm.profiler.output import RIGHT, ProfilerRow
from hillclimb.harness.gemm.results import Failed, FailureStatus, GpuCard, Measured, Product, beyond_card
from hillclimb.harness.gemm.shape import GemmShape

UNSUPPORTED = frozenset(
    [
        "not_supported",
        "not_run",
        "misaligned_operand",
        "invalid_problem",
        "error_not_supported",
        "error_arch_mismatch",
    ]
)
"""Status or disposition of a kernel that cannot run the problem, by the names of several releases."""


def to_result(row: ProfilerRow, shape: GemmShape, gpu: GpuCard) -> Measured | Failed:
    """Of a row of the transposed shape. A time that the card cannot have is a failure, as is a wrong result, or a row
    of another problem than this.
    """
    known = Product.of(shape).model_dump()
    kernel = row.operation
    if not row.may_win or row.runtime_ms is None:
        reason = f"status {row.status}, disposition {row.disposition}, Runtime {row.arguments.get('Runtime')}"
        return Failed(**known, kernel=kernel, status=_failure(row), reason=reason)
    if not _is_of(row, shape):
        reason = f"it ran {row.sizes} of A {row.arguments.get('A')}; was the problem given among the flags?"
        return Failed(**known, kernel=kernel, status="failed", reason=reason)
    found = Measured(
        **known,
        kernel=kernel,
        runtime_ms=row.runtime_ms,
        statistic="mean",
        is_checked=row.disposition == RIGHT,
    )
    if why := beyond_card(found, gpu, is_cold=True):
        return Failed(**known, kernel=kernel, status="impossible", reason=why)
    return found


def _is_of(row: ProfilerRow, shape: GemmShape) -> bool:
    """Elements may be spelled with another letter in front: e4m3 and fe4m3."""
    wanted = ELEMENTS[shape.dtype]["A"].partition(":")[0]
    element = row.arguments.get("A", "").partition(":")[0]
    return row.sizes == (shape.n, shape.m, shape.k) and element.removeprefix("f") == wanted.removeprefix("f")


def _failure(row: ProfilerRow) -> FailureStatus:
    if row.disposition == "incorrect":
        return "incorrect"
    if row.status in UNSUPPORTED or row.disposition in UNSUPPORTED:
        return "unsupported"
    return "impossible" if row.status == "success" and row.disposition != "failed" else "failed"
