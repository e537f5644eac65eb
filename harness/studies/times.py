"""proton_times.csv: a study's measured times, one row for each kernel launched, kept whole whatever happens.

    # device: NVIDIA H200                   what measured the newest rows: device, software, ceilings
    study,case,problem,variant,kernel,...   Row, a column for each field

Rows of one case and problem appear together, at once, and cases may be measured side by side, each on a GPU of its own.
Rows that this machine, harness or source would not repeat have another `state`; `--resume` measures those anew.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Record

TABLE_FILE = "proton_times.csv"


class TimesRow(Record):
    """One kernel in one call of one variant; what is known of the whole call stands in each of its rows."""

    study: str
    case: str
    problem: str
    variant: str
    kernel: str
    """As the profiler names it; empty where the variant could not be profiled."""
    launches: float | None = None
    """In one call."""
    launch_us: float | None = None
    """Microseconds of device time of one launch, as the profiler tells it from inside the sandbox."""
    call_us: float | None = None
    """Microseconds of one call by the judge's clock."""
    flops: float | None = None
    """Of one call, by the contract."""
    bytes: float | None = None
    """Of one call: what must be read and written once, by the contract."""
    gb_per_s: float | None = None
    """bytes over call_us."""
    copy_share: float | None = None
    """gb_per_s as a share of what a copy reaches on this device."""
    speedup: float | None = None
    """Over the baseline, in paired duels over fresh processes."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    """95 % confidence."""
    over_torch: float | None = None
    """Over yardstick.py, in such duels: through torch.compile, or as it is where it says so."""
    over_torch_low: float | None = None
    over_torch_high: float | None = None
    masked_share: float | None = None
    """Lanes masked off, of all lanes of the loads, stores and atomics, as counted by Triton's interpreter."""
    masked_on: str = ""
    """The problem on which that was counted."""
    note: str = ""
    """Why something is missing or doubtful."""
    device: str = ""
    """What it was measured on."""
    state: str
    """Digest of the case's files, the harness and the device; empty where something could not be measured."""

    @property
    def problem_key(self) -> tuple[str, str]:
        return self.case, self.problem


MEASURED_COLUMNS = ("call_us", "speedup", "over_torch")
"""What of a row takes a judge's measurement each."""

LANE_COLUMNS = ("masked_share", "masked_on")
"""What of a row counting lanes gives."""

TableHeader = Mapping[str, str]
"""What stands above the table."""


def read(file: Path) -> tuple[dict[str, str], list[TimesRow]]:
    """The lines above the table, and its rows. Nothing at all where there is no file; UsageError for another form."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}, []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read ({error}); move it away") from None
    lines = text.splitlines(keepends=True)
    known = dict(line[1:].strip().split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    table = csv.DictReader(io.StringIO("".join(line for line in lines if not line.startswith("#"))))
    try:
        return known, [_row(file, number, fields) for number, fields in enumerate(table, start=1)]
    except csv.Error as error:
        raise UsageError(f"{file}: is no table of times ({error}); move the file away") from None


def _row(file: Path, number: int, fields: Mapping[str | None, str | None]) -> TimesRow:
    given = {name: value for name, value in fields.items() if value not in ("", None)}
    try:
        return TimesRow.model_validate({"kernel": "", "state": "", **given})
    except (ValidationError, TypeError):
        raise UsageError(f"{file}: row {number} is none of this table's; move the file away") from None


def write(file: Path, known: TableHeader, rows: Iterable[TimesRow]) -> None:
    """The file whole, on disk when this returns; a reader sees the old one or the new one."""
    text = io.StringIO()
    for name, value in known.items():
        text.write(f"# {name}: {' '.join(value.split())}\n")
    table = csv.DictWriter(text, list(TimesRow.model_fields), lineterminator="\n")
    table.writeheader()
    table.writerows(row.model_dump(exclude_none=True) for row in rows)
    fresh = file.with_name(f".{file.name}.new")
    with fresh.open("w", encoding="utf-8") as out:
        out.write(text.getvalue())
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)


def update(file: Path, known: TableHeader, fresh: Iterable[TimesRow]) -> None:
    """`write`, with the rows of the fresh ones' cases and problems replaced; of several at once each has its turn."""
    with _alone(file.parent):
        _, rows = read(file)
        write(file, known, replace_problems(rows, fresh))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_problems(rows: Iterable[TimesRow], fresh: Iterable[TimesRow]) -> list[TimesRow]:
    """The rows with those of the fresh ones' cases and problems replaced, in the order of cases."""
    new = list(fresh)
    keys = {row.problem_key for row in new}
    kept = [row for row in rows if row.problem_key not in keys]
    return sorted(
        [*kept, *new], key=lambda row: row.case
    )  # stable: problems stay in the order they were measured


def measured_columns(row: TimesRow) -> set[str]:
    """Which times and duels a row has."""
    return {name for name in MEASURED_COLUMNS if getattr(row, name) is not None}


def choose_fuller_rows(variant: str, held: Sequence[TimesRow], fresh: Sequence[TimesRow]) -> list[TimesRow]:
    """The fresh rows of a variant, unless those that are held tell what they do not; with lanes that were counted."""
    old, new = ([row for row in rows if row.variant == variant] for rows in (held, fresh))
    if not old or not new:
        return old or new
    if not measured_columns(old[0]) <= measured_columns(new[0]):
        return old
    lanes = {name: getattr(old[0], name) for name in LANE_COLUMNS}
    return new if new[0].masked_share is not None else [row.model_copy(update=lanes) for row in new]
