"""What cutlass_profiler printed: the rows of its CSV, read by the names of the columns, and how far its log came.

A profiler that aborts leaves a log, or rows that end in the middle of one. What is there is kept, and what is missing
is told.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hillclimb.harness.gemm.profiler.names import KernelName, TileSizes, parse_name

IDENTIFYING = ("Problem", "Provider", "OperationKind", "Operation", "Disposition", "Status")
"""Columns of every header, in any place."""

IN_STDOUT = "CSV Results:"
"""Above the table, where it is printed and not written to a file."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
OPERATION = re.compile(r"^\s*Operation:\s*(\S+)\s*$", re.MULTILINE)

ANNOUNCED = re.compile(r"Profiling kernel for JUnit test .*: (\S+)\s*$", re.MULTILINE)
"""Printed before a kernel runs, if it is asked for."""

KINDS = ("gemm", "grouped_gemm")
"""Kinds of operations that are dense matrix products."""

AGREEMENT = 0.02
"""By how much, as a share, GFLOPs may differ from Flops / Runtime: a time of few digits."""

RIGHT, UNCHECKED = "passed", "not_verified"
"""Dispositions of a result that was compared with a reference, or was not."""


@dataclass(frozen=True)
class ProfilerRow:
    """One kernel on one problem."""

    operation: str
    kind: str
    """gemm, grouped_gemm, conv2d, ..."""
    disposition: str
    status: str
    arguments: Mapping[str, str]
    """The other columns by name, tags among them."""

    @property
    def name(self) -> KernelName:
        return parse_name(self.operation)

    @property
    def sizes(self) -> TileSizes | None:
        """m, n and k of the problem."""
        found = [self.arguments.get(key, "") for key in ("m", "n", "k")]
        if not all(size.isdecimal() for size in found):
            return None
        m, n, k = (int(size) for size in found)
        return m, n, k

    @property
    def cluster(self) -> TileSizes | None:
        """As the name has it: the columns are empty, or 1, where the profiler searched."""
        return self.name.cluster

    @property
    def runtime_ms(self) -> float | None:
        """A mean; None where it is no positive number."""
        value = _number(self.arguments.get("Runtime"))
        return value if value and math.isfinite(value) and value > 0 else None

    @property
    def was_run(self) -> bool:
        """To its end, with a time that its other figures agree with; the result may be wrong."""
        return self.status == "success" and self.runtime_ms is not None and self._agrees(self.runtime_ms)

    def _agrees(self, runtime_ms: float) -> bool:
        flops, rate = (_number(self.arguments.get(name)) for name in ("Flops", "GFLOPs"))
        if flops is None or rate is None:
            return True
        return abs(rate * runtime_ms * 1e6 / flops - 1) < AGREEMENT if flops else False

    @property
    def may_win(self) -> bool:
        """A wrong result never does, however fast it was."""
        return self.was_run and self.disposition in (RIGHT, UNCHECKED)


@dataclass(frozen=True)
class ProfilerOutput:
    """All rows in their order, and what is missing."""

    rows: tuple[ProfilerRow, ...]
    problems: tuple[str, ...] = ()

    def of_gemms(self) -> list[ProfilerRow]:
        """The last row of every operation and problem: what was appended later is the later measurement."""
        last: dict[tuple[object, ...], ProfilerRow] = {}
        for row in self.rows:
            if row.kind in KINDS:
                key = row.operation, row.sizes, row.arguments.get("batch_count"), row.arguments.get("A")
                last.pop(key, None)
                last[key] = row
        return list(last.values())


def read_csv(text: str) -> ProfilerOutput:
    """The file, or all that was printed below `CSV Results:`.

    Headers may come again, with other columns. A row with too few or too many fields is left out and told.
    """
    columns: list[str] | None = None
    rows: list[ProfilerRow] = []
    problems: list[str] = []
    since_header = 0
    for number, fields in _lines(text):
        if set(IDENTIFYING) <= {*fields}:
            columns, since_header = fields, 0
        elif columns is None:
            continue
        elif len(fields) != len(columns):
            problems.append(f"line {number} is torn: {len(fields)} of {len(columns)} fields")
            since_header += 1
        else:
            rows.append(_row(dict(zip(columns, fields, strict=True))))
            since_header += 1
    if columns is None:
        problems.append("no header: nothing was written")
    elif not since_header:
        problems.append("no rows below the last header: no kernel was run, or the profiler ended")
    return ProfilerOutput(tuple(rows), tuple(problems))


def read_stdout(text: str) -> ProfilerOutput | None:
    """The table that is printed where no file is written; None where the log has none."""
    _, mark, table = COLOURS.sub("", text).partition(IN_STDOUT)
    return read_csv(table) if mark else None


def operations_begun(log: str) -> list[str]:
    """By name, in their order. An operation is printed when it is done: the one that aborts is the next."""
    return OPERATION.findall(COLOURS.sub("", log))


def last_announced(log: str) -> str | None:
    """The kernel that was named last before it ran, where the profiler does that; None where none was."""
    return next(reversed(ANNOUNCED.findall(COLOURS.sub("", log))), None)


def last_words(log: str) -> str:
    """The last line that is not blank; of a long one its end."""
    lines = (line.strip() for line in reversed(COLOURS.sub("", log).splitlines()))
    return next((line for line in lines if line), "")[-200:]


def culprit(log: str, planned: Sequence[str]) -> str | None:
    """Of operations that run in this order, the one that an aborted profiler was at; None where all were done."""
    done = set(operations_begun(log))
    last = max((at for at, name in enumerate(planned) if name in done), default=-1)
    return planned[last + 1] if last + 1 < len(planned) else None


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Fields of each line that has any. A torn quote ends with its line."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and "," in line:
            yield number, next(csv.reader([line]))


def _row(fields: Mapping[str, str]) -> ProfilerRow:
    rest = {name: value.strip() for name, value in fields.items() if name not in IDENTIFYING}
    operation, kind, disposition, status = (
        fields[name].strip() for name in ("Operation", "OperationKind", "Disposition", "Status")
    )
    return ProfilerRow(operation, kind, disposition, status, rest)
