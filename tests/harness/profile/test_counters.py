"""ncu's tables, in both forms it prints, and what is made of none; the real tool is asked in tests/gpu."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.screen.counter_text import KernelCounters, summary
from hillclimb.harness.case.contract import Contract, Spec, Work
from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.errors import SandboxError
from hillclimb.harness.profile.counters import (
    DURATION,
    LOCAL_LOADS,
    LOCAL_STORES,
    MAX_KERNELS,
    MAX_NAME_CHARS,
    METRICS,
    READ,
    STALL,
    TOP_STALLS,
    WRITTEN,
    CounterReader,
    find_ncu,
    ncu_command,
    parse_counters,
    without_refused,
)
from hillclimb.harness.profile.tool_run import ToolSandbox
from hillclimb.harness.sandbox.rungs.choose import Confinement, bubblewrap_rung

LAUNCH = [
    "Process ID",
    "Process Name",
    "Host Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
]

LONG = """\
==PROF== Connected to process 19963 (/usr/bin/python3.12)
==PROF== Profiling "saxpy" - 0: 0%....50%....100% - 9 passes
"ID","Process ID","Kernel Name","Block Size","Section Name","Metric Name","Metric Unit","Metric Value"
"0","19963","saxpy","(256, 1, 1)","Command line profiler metrics","dram__bytes_read.sum","Mbyte","8"
"0","19963","saxpy","(256, 1, 1)","Command line profiler metrics","dram__bytes_write.sum","byte","4,000,000"
"0","19963","saxpy","(256, 1, 1)","Command line profiler metrics","gpu__time_duration.sum","us","1,205.00"
"0","19963","saxpy","(256, 1, 1)","Command line profiler metrics","lts__t_sector_hit_rate.pct","%","n/a"
==PROF== Disconnected from process 19963
"""

REFUSED = """\
==PROF== Connected to process 1 (/usr/bin/python3.12)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target
==PROF== Disconnected from process 1
"""
UNKNOWN = "==ERROR== Failed to find metric regex:^smsp__sass_inst_executed_op_local_ld\\.(sum|min|max|avg|pct|ratio)$\n"


def wide(*launches: dict[str, str], units: dict[str, str] | None = None) -> str:
    """ncu's raw page: names, units, then a row a launch."""
    metrics = list(dict.fromkeys(name for launch in launches for name in launch if name != "kernel"))
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(["ID", *LAUNCH, "Kernel Name", *metrics])
    writer.writerow(["", *("" for _ in LAUNCH), "", *((units or {}).get(name, "") for name in metrics)])
    for number, launch in enumerate(launches):
        filled = (launch.get(name, "") for name in metrics)
        writer.writerow([str(number), *("x" for _ in LAUNCH), launch["kernel"], *filled])
    return f"==PROF== Connected to process 7 (/usr/bin/python3)\n{out.getvalue()}==PROF== Disconnected from process 7\n"


UNITS = {DURATION: "ns", READ: "byte", WRITTEN: "byte", "lts__t_sector_hit_rate.pct": "%"}
COPY = {
    "kernel": "copy_kernel",
    DURATION: "2,000",
    READ: "4,000,000",
    WRITTEN: "4000000.0",
    "lts__t_sector_hit_rate.pct": "51.5",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "88",
    "launch__registers_per_thread": "32",
    LOCAL_LOADS: "0",
    LOCAL_STORES: "0",
    STALL.format("long_scoreboard"): "12.5",
    STALL.format("wait"): "1.5",
    STALL.format("barrier"): "0.2",
    STALL.format("membar"): "0.1",
}


def test_the_raw_page_becomes_counters_by_kernel() -> None:
    units = {**UNITS, "sm__warps_active.avg.pct_of_peak_sustained_active": "%"}
    spilling = {"kernel": "sum(float *, int)", DURATION: "9000", LOCAL_LOADS: "1,000", LOCAL_STORES: "24"}
    second = {**COPY, DURATION: "4,000"}
    first, copy = parse_counters(wide(COPY, spilling, second, units=units))
    assert (first.kernel, first.launches, first.local_memory, first.dram_read) == (
        "sum(float *, int)",
        1,
        1024,
        None,
    )
    assert (copy.kernel, copy.launches, copy.registers, copy.local_memory) == ("copy_kernel", 2, 32, 0)
    assert copy.seconds == pytest.approx(3e-6)
    assert copy.bytes_per_second == pytest.approx(8e6 / 3e-6)
    assert copy.l2_hits == pytest.approx(0.515)
    assert copy.occupancy == pytest.approx(0.88)
    assert copy.stalls == (("long scoreboard", 12.5), ("wait", 1.5), ("barrier", 0.2))
    assert summary(copy) == (
        "2,667 GB/s of DRAM, 52% L2 hits, 88% occupancy, 32 registers a thread, no spills, "
        "warps wait for long scoreboard 12.5, wait 1.5, barrier 0.2"
    )
    assert summary(first) == "1,024 local memory instructions"


def test_the_details_page_is_read_as_well() -> None:
    (kernel,) = parse_counters(LONG)
    assert (kernel.kernel, kernel.launches, kernel.l2_hits) == ("saxpy", 1, None)
    assert kernel.seconds == pytest.approx(1.205e-3)
    assert (kernel.dram_read, kernel.dram_written) == (8e6, 4e6)


def test_a_metric_that_ncu_does_not_know_is_left_out() -> None:
    known = without_refused(METRICS, UNKNOWN)
    assert set(METRICS) - set(known) == {LOCAL_LOADS}
    assert without_refused(METRICS, REFUSED) == METRICS
    assert without_refused(METRICS, LONG) == METRICS


def test_the_command_asks_for_every_metric_and_leaves_the_clocks_alone() -> None:
    words = ncu_command("/usr/local/cuda/bin/ncu", METRICS, "/proc/self/fd/7")
    assert words[words.index("--metrics") + 1].split(",") == list(METRICS)
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert "" not in words


CELLS = st.one_of(
    st.sampled_from(
        [*METRICS, "ID", "Kernel Name", "Metric Name", "Metric Value", "Metric Unit", "nan", "-1", "1e400"]
    ),
    st.floats().map(str),
    st.integers(-(10**30), 10**30).map(str),
    st.text(max_size=300),
)
ROWS = st.lists(CELLS, max_size=8)
HEADS = st.sampled_from(
    [
        ["ID", "Kernel Name", DURATION, READ, WRITTEN],
        ["ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"],
        ["ID", "Kernel Name"],
        ["ID", "Kernel Name", "Metric Name"],
    ]
)


def expect_sane(kernels: tuple[KernelCounters, ...]) -> None:
    assert len(kernels) <= MAX_KERNELS
    for kernel in kernels:
        assert 0 < len(kernel.kernel) <= MAX_NAME_CHARS
        assert kernel.kernel.isprintable()
        assert len(kernel.stalls) <= TOP_STALLS
        for figure in (
            kernel.seconds,
            kernel.dram_read,
            kernel.l2_hits,
            kernel.local_memory,
            kernel.bytes_per_second,
        ):
            assert figure is None or figure >= 0
        assert summary(kernel)


@given(HEADS, st.lists(ROWS, max_size=8), st.integers(0, 4000))
def test_whatever_table_ncu_prints_is_read(head: list[str], rows: list[list[str]], length: int) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([head, *rows])
    expect_sane(parse_counters(out.getvalue()))
    expect_sane(parse_counters(out.getvalue()[:length]))


@given(
    st.one_of(st.text(max_size=400), st.binary(max_size=400).map(lambda raw: raw.decode(errors="replace")))
)
def test_whatever_text_there_is_instead_is_read(text: str) -> None:
    expect_sane(parse_counters(text))
    at = len(text) * 7 % len(LONG)
    expect_sane(parse_counters(LONG[:at] + text + LONG[at:]))
    without_refused(METRICS, text)


class Double(Contract):
    problems: Any = {"small": {"n": 64}}  # noqa: RUF012 - a contract's own form
    distributions = ("normal",)

    def inputs(self, problem: Any, distribution: str, generator: torch.Generator) -> dict[str, torch.Tensor]:
        return {"x": torch.rand(problem["n"], generator=generator)}

    def outputs(self, problem: Any) -> dict[str, Spec]:
        return {"y": Spec((problem["n"],), torch.float32)}

    def reference(self, problem: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        raise NotImplementedError

    attainable = reference

    def work(self, problem: Any) -> Work:
        return Work(problem["n"], 8 * problem["n"])


SOURCE = InputSource(Double(), "small", "normal", random.Random(2), "cpu")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ToolSandbox]:
    (tmp_path / "kernel.py").write_text("import torch\n\ndef run(x, y):\n    torch.mul(x, 2, out=y)\n")
    (tmp_path / "ncu").write_text(
        "#!/bin/sh\n"
        'while [ "${1#--}" != "$1" ]; do\n'
        "  case $1 in --log-file) log=$2; shift;; --metrics) metrics=$2; shift;; --csv|--print-fp) ;; *) shift;; esac\n"
        "  shift\ndone\n"
        '"$@" || exit\n'
        'case $metrics in *local_ld*) cat /workspace/first.txt;; *) cat /workspace/second.txt;; esac > "$log"\n'
    )
    (tmp_path / "ncu").chmod(0o755)
    (tmp_path / "first.txt").write_text(LONG)
    (tmp_path / "second.txt").write_text(LONG)
    try:
        rung = bubblewrap_rung()
    except SandboxError as error:
        pytest.skip(str(error))
    yield ToolSandbox(rung, Confinement(tmp_path, 4 << 30, 64 << 20), "kernel.py:run", "cpu")


@pytest.mark.slow(3)
def test_a_call_is_rehearsed_and_counted(stage: ToolSandbox) -> None:
    counted = CounterReader(Path("/workspace/ncu"), stage).read(SOURCE)
    assert [kernel.kernel for kernel in counted.kernels] == ["saxpy"]
    assert (counted.problem, counted.failure) == ("small", "")


@pytest.mark.slow(5)
def test_what_ncu_does_not_know_is_left_out_in_a_second_run(stage: ToolSandbox, tmp_path: Path) -> None:
    (tmp_path / "first.txt").write_text(UNKNOWN)
    assert CounterReader(Path("/workspace/ncu"), stage).read(SOURCE).kernels


@pytest.mark.slow(4)
def test_counters_kept_for_administrators_are_told_of(stage: ToolSandbox, tmp_path: Path) -> None:
    (tmp_path / "first.txt").write_text(REFUSED)
    counted = CounterReader(Path("/workspace/ncu"), stage).read(SOURCE)
    assert counted.kernels == ()
    assert "keeps counters for administrators" in counted.failure


def test_a_missing_tool_is_told_of(stage: ToolSandbox) -> None:
    assert CounterReader(None, stage).read(SOURCE).failure == "ncu is not installed"
    assert find_ncu() is None or find_ncu().is_file()  # type: ignore[union-attr]
