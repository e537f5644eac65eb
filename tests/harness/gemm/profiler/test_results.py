"""From the profiler's rows to results that may be compared."""

from __future__ import annotations

import pytest

from hillclimb.harness.gemm.profiler.output import ProfilerRow
from hillclimb.harness.gemm.profiler.results import to_result
from hillclimb.harness.gemm.results import Failed, GpuCard, Measured
from hillclimb.harness.gemm.shape import Dtype, GemmShape

H200 = GpuCard(name="NVIDIA H200")
SHAPE = GemmShape("mlp", 512, 1024, 2048, "bf16")


def row(
    disposition: str = "passed",
    status: str = "success",
    runtime: str = "0.01",
    a: str = "bf16:row",
    m: str = "1024",
) -> ProfilerRow:
    arguments = {"m": m, "n": "512", "k": "2048", "A": a, "Runtime": runtime}
    return ProfilerRow("kernel", "gemm", disposition, status, arguments)


def test_a_right_row_of_the_transposed_shape_is_a_measurement() -> None:
    found = to_result(row(), SHAPE, H200)
    assert isinstance(found, Measured)
    assert (found.name, found.kernel, found.runtime_ms, found.statistic) == ("mlp", "kernel", 0.01, "mean")
    assert found.is_checked
    assert found.shape == SHAPE.named("")
    unchecked = to_result(row("not_verified"), SHAPE, H200)
    assert isinstance(unchecked, Measured)
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
        (row(m="512"), "failed"),
        (row(a="f16:row"), "failed"),
        (row(a=""), "failed"),
        (row("not_run"), "unsupported"),
        (row("not_run", "misaligned_operand", ""), "unsupported"),
    ],
)
def test_any_other_is_a_failure_with_its_reason(bad: ProfilerRow, status: str) -> None:
    failed = to_result(bad, SHAPE, H200)
    assert isinstance(failed, Failed)
    assert (failed.status, failed.kernel, failed.name) == (status, "kernel", "mlp")
    assert failed.reason


@pytest.mark.parametrize(
    ("a", "dtype"), [("f16:row", "f16"), ("e4m3:row", "fp8"), ("fe4m3:row", "fp8"), ("s8:row", "int8")]
)
def test_elements_may_be_spelled_otherwise(a: str, dtype: Dtype) -> None:
    shape = GemmShape("mlp", 512, 1024, 2048, dtype)
    assert isinstance(to_result(row(a=a), shape, H200), Measured)


def test_a_small_product_is_not_read_faster_than_memory_gives_it() -> None:
    """Of one token the FLOPs alone would allow nearly any time."""
    shape = GemmShape("decode", 1, 4096, 4096, "bf16")
    arguments = {"m": "4096", "n": "1", "k": "4096", "A": "bf16:row", "Runtime": "0.006"}
    found = to_result(ProfilerRow("kernel", "gemm", "passed", "success", arguments), shape, H200)
    assert isinstance(found, Failed)
    assert found.status == "impossible"
    assert found.reason == "0.006 ms are 5593.77 GB/s read from memory; the card has 4800"
