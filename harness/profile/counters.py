"""What the hardware counted while one problem's kernels ran: traffic, occupancy, registers, spills, stalls, by ncu.

A lead for proposers, like a profile's buckets: nothing is decided by it, and the candidate shares the sandbox with the
tool (harness.profile.tool_run). ncu runs every kernel several times to read all counters, with caches emptied before
each, so its durations are not those of the benchmark. Where the driver keeps counters for administrators
(NVreg_RestrictProfilingToAdminUsers), or there is no ncu, one sentence says so.

Metrics are those of compute capability 9.0; names of others that ncu does not know are left out in a second run.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.profile.problem_writer import ProblemDraft
from hillclimb.harness.profile.rows import printable
from hillclimb.harness.profile.tool_run import ToolOutput, ToolSandbox, draft_problems, find_program
from hillclimb.harness.records import KernelCounters

PLACES = (
    "/usr/local/cuda/bin/ncu",
    "/usr/local/cuda-*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/cuda*/nsight-compute-*/ncu",
)
MAX_LAUNCHES = 24
"""Kernels of one call that are looked at."""

MAX_KERNELS = 8
MAX_NAME_CHARS = 160
MAX_VALUE = 1e18

DURATION = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
L2_HITS = "lts__t_sector_hit_rate.pct"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
ARITHMETIC = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR_CORES = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
REGISTERS = "launch__registers_per_thread"
SHARED_MEMORY = "launch__shared_mem_per_block"
LOCAL_LOADS, LOCAL_STORES = (
    "smsp__sass_inst_executed_op_local_ld.sum",
    "smsp__sass_inst_executed_op_local_st.sum",
)
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = (
    "barrier",
    "gmma",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "no_instruction",
    "not_selected",
    "short_scoreboard",
    "wait",
)
TOP_STALLS = 3

METRICS = (
    DURATION,
    READ,
    WRITTEN,
    L2_HITS,
    OCCUPANCY,
    ARITHMETIC,
    MEMORY,
    TENSOR_CORES,
    REGISTERS,
    SHARED_MEMORY,
    LOCAL_LOADS,
    LOCAL_STORES,
    *(STALL.format(stall) for stall in STALLS),
)

SCALES: Mapping[str, float] = {
    "nsecond": 1e-9,
    "ns": 1e-9,
    "usecond": 1e-6,
    "us": 1e-6,
    "msecond": 1e-3,
    "ms": 1e-3,
    "second": 1.0,
    "s": 1.0,
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
    "Kbyte/block": 1e3,
    "%": 1e-2,
}
"""Units to seconds, bytes and shares; any other unit counts as it is."""


@dataclass(frozen=True)
class ProblemCounters:
    """What ncu told of one problem."""

    problem: str
    kernels: tuple[KernelCounters, ...] = ()
    """The longest first."""
    failure: str = ""
    """Why there are none, or not all; empty where there are."""


@dataclass(frozen=True)
class CounterReader:
    """Runs ncu over one side. `program` is its path inside the sandbox; None where there is none."""

    program: Path | None
    sandbox: ToolSandbox
    seconds: float = 120.0

    def read(self, source: InputSource) -> ProblemCounters:
        """Counters of one call on one problem. Raises MachineError where the sandbox fails."""
        if self.program is None:
            return ProblemCounters(source.problem, failure="ncu is not installed")
        if self.sandbox.rung.name != "bubblewrap":
            trouble = f"ncu runs behind bubblewrap only, and the sandbox here is {self.sandbox.rung.name}"
            return ProblemCounters(source.problem, failure=trouble)
        fitting, _ = draft_problems([source])
        if not fitting:
            return ProblemCounters(source.problem, failure="the problem is too large for ncu")
        return self._read(str(self.program), source.problem, fitting)

    def _read(self, program: str, problem: str, fitting: Sequence[ProblemDraft]) -> ProblemCounters:
        heard = self.sandbox.run(lambda log: ncu_command(program, METRICS, log), fitting, self.seconds)
        kernels = parse_counters(heard.log)
        known = without_refused(METRICS, heard.log + heard.printed)
        if not kernels and known != METRICS:
            heard = self.sandbox.run(lambda log: ncu_command(program, known, log), fitting, self.seconds)
            kernels = parse_counters(heard.log)
        return ProblemCounters(problem, kernels, "" if kernels else _why_none(heard))


def find_ncu() -> Path | None:
    """The program on this machine, where the sandbox shows it too."""
    return find_program("ncu", PLACES)


def ncu_command(program: str, metrics: Sequence[str], log: str) -> list[str]:
    """ncu's command line; the kernel's own goes after it. Only the profiler's range is looked at: the second call.

    Clocks stay as they are: setting them takes a right that a sandbox does not have, and other processes would notice.
    """
    options = {
        "--log-file": log,
        "--page": "raw",
        "--print-units": "base",
        "--print-fp": "",
        "--csv": "",
        "--clock-control": "none",
        "--cache-control": "all",
        "--profile-from-start": "off",
        "--target-processes": "all",
        "--launch-count": str(MAX_LAUNCHES),
        "--metrics": ",".join(metrics),
    }
    return [program, *(word for option in options.items() for word in option if word)]


def parse_counters(text: str) -> tuple[KernelCounters, ...]:
    """Kernels out of ncu's CSV, whatever the text holds: one row a launch, or one row a launch and metric."""
    launches: dict[tuple[str, str], dict[str, float]] = {}
    for launch, name, metric, value in _values(text):
        launches.setdefault((launch, name), {})[metric] = value
    by_name: dict[str, list[dict[str, float]]] = {}
    for (_, name), metrics in launches.items():
        by_name.setdefault(name, []).append(metrics)
    kernels = (_kernel(name, metrics) for name, metrics in by_name.items())
    return tuple(sorted(kernels, key=lambda kernel: -(kernel.seconds or 0.0) * kernel.launches)[:MAX_KERNELS])


def without_refused(metrics: Sequence[str], text: str) -> tuple[str, ...]:
    """The metrics but those that an error of ncu's names; all of them where none does."""
    complaints = "\n".join(line for line in text.splitlines() if "==ERROR==" in line or "==WARNING==" in line)
    named = set(re.findall(r"\w+__\w+", complaints))
    return tuple(metric for metric in metrics if metric.split(".")[0] not in named)


def _values(text: str) -> Iterator[tuple[str, str, str, float]]:
    """Launch, kernel, metric and value in base units."""
    table = _table(text)
    header = next(table, None)
    if header is None:
        return
    columns = {name: number for number, name in enumerate(header)}
    if "Metric Name" in columns:
        for row in table:
            if len(row) == len(header) and (known := _long(row, columns)):
                yield known
        return
    units = next(table, [])
    for row in table:
        if len(row) == len(header) == len(units):
            yield from _wide(row, columns, units)


def _table(text: str) -> Iterator[list[str]]:
    """Rows from the header on; ncu's own remarks before, between and after begin with ==."""
    lines = (line for line in text.replace("\x00", "").splitlines() if not line.startswith("=="))
    rows = csv.reader(io.StringIO("\n".join(lines)))
    started = False
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:
            continue
        started = started or ("ID" in row and "Kernel Name" in row)
        if started:
            yield row


def _long(row: Sequence[str], columns: Mapping[str, int]) -> tuple[str, str, str, float] | None:
    needed = ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
    if not all(name in columns for name in needed):
        return None
    launch, kernel, metric, unit, value = (row[columns[name]] for name in needed)
    figure = _figure(value, unit)
    return None if metric not in METRICS or figure is None else (launch, kernel, metric, figure)


def _wide(
    row: Sequence[str], columns: Mapping[str, int], units: Sequence[str]
) -> Iterator[tuple[str, str, str, float]]:
    for metric in METRICS:
        if (number := columns.get(metric)) is not None:
            figure = _figure(row[number], units[number])
            if figure is not None:
                yield row[columns["ID"]], row[columns["Kernel Name"]], metric, figure


def _figure(value: str, unit: str) -> float | None:
    try:
        figure = float(value.replace(",", "")) * SCALES.get(unit, 1.0)
    except ValueError:
        return None
    return figure if math.isfinite(figure) and 0 <= figure <= MAX_VALUE else None


def _kernel(name: str, launches: Sequence[Mapping[str, float]]) -> KernelCounters:
    def mean(metric: str) -> float | None:
        return _mean(launch[metric] for launch in launches if metric in launch)

    loads, stores = mean(LOCAL_LOADS), mean(LOCAL_STORES)
    stalls = ((stall.replace("_", " "), mean(STALL.format(stall))) for stall in STALLS)
    told = sorted(((stall, cycles) for stall, cycles in stalls if cycles), key=lambda one: -one[1])
    return KernelCounters(
        kernel=printable(name.strip())[:MAX_NAME_CHARS].replace("\n", " ") or "a kernel without a name",
        launches=len(launches),
        seconds=mean(DURATION),
        dram_read=mean(READ),
        dram_written=mean(WRITTEN),
        l2_hits=mean(L2_HITS),
        occupancy=mean(OCCUPANCY),
        arithmetic=mean(ARITHMETIC),
        memory=mean(MEMORY),
        tensor_cores=mean(TENSOR_CORES),
        registers=mean(REGISTERS),
        shared_memory=mean(SHARED_MEMORY),
        local_memory=None if loads is None or stores is None else loads + stores,
        stalls=tuple(told[:TOP_STALLS]),
    )


def _mean(figures: Iterable[float]) -> float | None:
    known = list(figures)
    return sum(known) / len(known) if known else None


def _why_none(heard: ToolOutput) -> str:
    said = heard.log + heard.printed
    if "ERR_NVGPUCTRPERM" in said:
        return "the driver keeps counters for administrators (NVreg_RestrictProfilingToAdminUsers=1)"
    if heard.exit is None:
        return f"ncu's time was up after {heard.seconds:.0f} s"
    complaint = next((line for line in said.splitlines() if line.startswith("==ERROR==")), "")
    last = complaint.removeprefix("==ERROR==").strip() or said.strip()[-200:]
    return (
        f"ncu told of no kernel ({heard.exit}): {printable(last[:400])}" if last else "ncu told of no kernel"
    )
