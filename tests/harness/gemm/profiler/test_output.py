"""What cutlass_profiler prints, whole, torn, and in the ways of its versions."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.gemm.profiler.output import (
    ProfilerRow,
    culprit,
    operations_begun,
    read_csv,
    read_stdout,
)

HEAD = (
    "Problem,Provider,OperationKind,Operation,Disposition,Status,gemm_kind,m,n,k,A,B,C,D,split_k_slices,batch_count,"
    "cluster_m,cluster_n,cluster_k,Bytes,Flops,Flops/Byte,Runtime,GB/s,GFLOPs"
)
NAME = "cutlass3x_sm90_tensorop_gemm_bf16_bf16_f32_bf16_bf16_{}_{}_0_tnn_align8_warpspecialized_cooperative_epi_tma"
ONE, TWO, THREE = (
    NAME.format("128x128x64", "2x1x1"),
    NAME.format("128x256x64", "1x2x1"),
    NAME.format("64x64x64", "1x1x1"),
)


def line(
    operation: str = ONE,
    runtime: str = "0.01",
    disposition: str = "passed",
    status: str = "success",
    kind: str = "gemm",
    cluster: str = "2,1,1",
    sizes: str = "512,1024,2048",
    rate: str | None = None,
) -> str:
    if rate is None:
        try:
            rate = f"{2148532224 / float(runtime) / 1e6:g}"
        except (ValueError, ZeroDivisionError):
            rate = "inf"
    types = "bf16:row,bf16:column,bf16:column,bf16:column"
    return (
        f"1,CUTLASS,{kind},{operation},{disposition},{status},universal,{sizes},{types},1,1,{cluster},7340032,"
        f"2148532224,292,{runtime},400,{rate}"
    )


def table(*lines: str, head: str = HEAD) -> str:
    return "\n".join([head, *lines]) + "\n"


def winner(rows: Sequence[ProfilerRow]) -> str:
    return min((row for row in rows if row.may_win), key=lambda row: row.runtime_ms or 0).operation


def test_a_wrong_result_never_wins() -> None:
    found = read_csv(
        table(line(ONE, "0.005", "incorrect"), line(TWO, "0.01"), line(THREE, "0.02", "not_verified"))
    )
    assert winner(found.rows) == TWO
    assert [row.may_win for row in found.rows] == [False, True, True]
    assert found.problems == ()


@pytest.mark.parametrize("cluster", ["2,1,1", ",,", "1,1,1"])
def test_the_cluster_is_the_names(cluster: str) -> None:
    (row,) = read_csv(table(line(TWO, cluster=cluster))).rows
    assert row.cluster == (1, 2, 1)
    assert row.name.tile == (128, 256, 64)
    assert row.sizes == (512, 1024, 2048)


@pytest.mark.parametrize(("text", "told"), [("", "nothing was written"), (table(), "no kernel was run")])
def test_nothing_is_no_success(text: str, told: str) -> None:
    found = read_csv(text)
    assert not found.rows
    assert told in found.problems[0]


@given(st.integers(1, 150))
def test_a_torn_row_is_told_and_the_others_are_kept(cut: int) -> None:
    whole = table(line(ONE), line(TWO))
    found = read_csv(whole[: -cut - 1])
    assert found.rows[0].operation == ONE
    if len(found.rows) == 2:
        assert found.rows[1].arguments.keys() == found.rows[0].arguments.keys(), (
            "only its last figure may be short"
        )
    elif whole[: -cut - 1].count("\n") == 2:
        assert "line 3 is torn" in found.problems[0]


@pytest.mark.parametrize(
    ("status", "disposition", "runtime"),
    [
        ("not_supported", "not_run", ""), ("error_internal", "failed", ""), ("success", "passed", "0"),
        ("success", "passed", "nan"), ("success", "passed", "inf"), ("success", "passed", "-1"), ("", "", "0.1"),
        ("success", "passed", "1,5"),
    ],
)  # fmt: skip
def test_what_has_no_time_or_no_success_cannot_win(status: str, disposition: str, runtime: str) -> None:
    found = read_csv(table(line(runtime=runtime, disposition=disposition, status=status)))
    assert not any(row.may_win for row in found.rows)


@pytest.mark.parametrize(
    ("rate", "agrees"), [("214853", True), ("", True), ("nan", False), ("inf", False), ("1", False)]
)
def test_a_time_that_the_other_figures_contradict_cannot_win(rate: str, agrees: bool) -> None:
    (row,) = read_csv(table(line(rate=rate))).rows
    assert row.may_win == agrees


def test_a_table_in_the_log_is_read_by_its_own_header() -> None:
    """As profilers of 2.x print it: without D, Flops/Byte and clusters."""
    head = (
        "Problem,Provider,OperationKind,Operation,Disposition,Status,m,n,k,A,B,C,split_k_slices,Bytes,Flops,Runtime,"
        "GB/s,GFLOPs"
    )
    name = "cutlass_tensorop_f16_s16816gemm_f16_128x128_32x4_nn_align8"
    row = f"1,CUTLASS,gemm,{name},passed,success,512,1024,2048,f16:n,f16:n,f16:n,1,7340032,2148532224,0.0217,315,99010"
    log = f"a banner, of its own\n\x1b[1;37mOperation\x1b[0m\n\nCSV Results:\n\n{head}\n{row}\n"
    found = read_stdout(log)
    assert found is not None
    (one,) = found.rows
    assert (one.runtime_ms, one.name.tile, one.cluster) == (0.0217, (128, 128, 32), (1, 1, 1))
    assert read_stdout("nothing of the kind") is None


def test_other_kinds_and_later_headers_are_told_apart() -> None:
    conv = "Problem,Provider,OperationKind,Operation,Disposition,Status,n,h,w,Runtime"
    found = read_csv(table(line(ONE)) + conv + "\n")
    assert [row.operation for row in found.of_gemms()] == [ONE]
    assert "no rows below the last header" in found.problems[0]
    found = read_csv(conv + "\n1,CUTLASS,conv2d,a_conv,passed,success,1,2,3,0.5\n" + table(line(TWO)))
    assert [row.operation for row in found.of_gemms()] == [TWO]
    assert [row.runtime_ms for row in found.rows] == [0.5, 0.01]
    assert found.problems == ()


def test_of_what_was_appended_the_last_counts() -> None:
    found = read_csv(
        table(line(ONE, "0.5"), line(TWO)) + table(line(ONE, "0.4"), line(ONE, "0.3", sizes="8,8,8"))
    )
    assert [(row.operation, row.runtime_ms) for row in found.of_gemms()] == [
        (TWO, 0.01),
        (ONE, 0.4),
        (ONE, 0.3),
    ]
    assert len(found.rows) == 4


def test_tags_quotes_and_line_ends_of_windows_change_nothing() -> None:
    wide = io.StringIO()
    writer = csv.writer(wide, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(["card", "night", *HEAD.split(",")])
    writer.writerow(["H200, one", "3", *line(TWO).split(",")])
    (row,) = read_csv(wide.getvalue()).rows
    plain = read_csv(table(line(TWO))).rows[0]
    assert (row.operation, row.runtime_ms, row.sizes) == (plain.operation, plain.runtime_ms, plain.sizes)
    assert row.arguments["card"] == "H200, one"


def log_of(*operations: str) -> str:
    return "".join(
        f"\n\n=====\n  Problem ID: 1\n\n        Provider: \x1b[1;37mCUTLASS\x1b[0m\n       Operation: {name}\n\n"
        f"          Status: \x1b[1;37mSuccess\x1b[0m\n         Runtime: 0.01  ms\n"
        for name in operations
    )


def test_an_abort_is_laid_at_the_kernel_that_would_have_come() -> None:
    planned = [ONE, TWO, THREE]
    assert culprit(log_of() + "terminate called", planned) == ONE
    assert culprit(log_of(ONE) + "terminate called", planned) == TWO
    assert culprit(log_of(ONE, TWO), planned) == THREE
    assert culprit(log_of(*planned), planned) is None
    assert operations_begun(log_of(ONE, TWO)) == [ONE, TWO]


@given(st.lists(st.sampled_from([*'a,"\r\n1.', HEAD, line()])))
def test_no_output_is_too_odd(parts: list[str]) -> None:
    found = read_csv("".join(parts))
    assert found.rows or found.problems
