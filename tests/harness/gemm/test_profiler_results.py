"""From the profiler's rows to results that may be compared."""

from __future__ import annotations

import pytest

from hillclimb.harness.gemm.profiler_output import ProfilerRow
from hillclimb.harness.gemm.profiler_results import shape_of, to_results
from hillclimb.harness.gemm.results import GpuCard
from hillclimb.harness.gemm.shape import GemmShape

H200 = GpuCard(name="NVIDIA H200")
SHAPE = GemmShape("mlp", 512, 1024, 2048, "bf16")


def row(
    disposition: str = "passed", status: str = "success", runtime: str = "0.01", a: str = "bf16:row"
) -> ProfilerRow:
    arguments = {"m": "512", "n": "1024", "k": "2048", "A": a, "Runtime": runtime}
    return ProfilerRow("kernel", "gemm", disposition, status, arguments)


def test_a_right_row_is_a_measurement() -> None:
    ((found,), failed) = to_results([row()], [SHAPE], H200)
    assert failed == []
    assert (found.name, found.kernel, found.runtime_ms, found.statistic) == ("mlp", "kernel", 0.01, "mean")
    assert found.is_checked
    assert found.shape == SHAPE.named("")
    ((unchecked,), _) = to_results([row("not_verified")], [SHAPE], H200)
    assert not unchecked.is_checked


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (row("incorrect"), "incorrect"),
        (row("not_run", "error_not_supported", ""), "unsupported"),
        (row("failed", "error_internal", ""), "failed"),
        (row("failed"), "failed"),
        (row(runtime="0"), "impossible"),
        (row(runtime="nan"), "impossible"),
        (row(runtime="0.00001"), "impossible"),
    ],
)
def test_any_other_is_a_failure_with_its_reason(bad: ProfilerRow, status: str) -> None:
    measured, (failed,) = to_results([bad], [SHAPE], H200)
    assert measured == []
    assert (failed.status, failed.kernel, failed.name) == (status, "kernel", "mlp")
    assert failed.reason


@pytest.mark.parametrize(("a", "dtype"), [("f16:row", "f16"), ("e4m3:row", "fp8"), ("s8:column", "int8")])
def test_elements_are_told_from_the_first_operand(a: str, dtype: str) -> None:
    found = shape_of(row(a=a))
    assert found is not None
    assert found.dtype == dtype


def test_what_was_not_asked_for_is_left_out() -> None:
    assert shape_of(row(a="tf32:row")) is None
    assert to_results([row(a="f16:row"), row(a="tf32:row")], [SHAPE], H200) == ([], [])
