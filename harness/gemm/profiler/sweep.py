"""Every kernel of a cutlass_profiler on every shape: resumed where it ended, and no kernel's fault costs another one.

A sweep has a folder, and each shape a folder in that. There lie which kernels it runs, and the rows, the log and the
end of each process. What is settled is read from these alone, so a sweep that was killed loses what was running.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.folder import claim, locked, sha256_of, write
from hillclimb.harness.gemm.profiler.attempt import Blamed, ProcessEnd, Settled, run, settle
from hillclimb.harness.gemm.profiler.command import ELEMENTS, CutlassProfiler, csv_of, problem_arguments
from hillclimb.harness.gemm.profiler.origin import software_of
from hillclimb.harness.gemm.profiler.output import ProfilerRow, read_csv
from hillclimb.harness.gemm.profiler.results import to_result
from hillclimb.harness.gemm.results import Failed, GpuCard, Measured, Product, ProviderResults
from hillclimb.harness.gemm.shape import GemmShape
from hillclimb.harness.records.record import Record

PROVIDER = "cutlass_profiler"
RESULTS = "cutlass_profiler_results.json"
"""The file of all results in the sweep's folder."""

KERNELS_AT_ONCE = 64
"""Of one process: before each kernel the profiler compares every one it has with the whole list."""

SPEECHLESS = 2
"""Processes one after another that begin no kernel, after which the machine is to blame."""


class SweepSettings(Record):
    """What all times of one folder have in common."""

    schema_version: Literal[1] = Field(1, alias="schema")
    profiler_sha256: str
    flags: tuple[str, ...]
    told_sha256: str
    """Of all that the profiler is told beside these flags and the sizes."""
    gpu: GpuCard

    @property
    def digest(self) -> str:
        """sha256 of what else decides a time than the card."""
        return _sha256([self.profiler_sha256, self.told_sha256, *self.flags])


@dataclass(frozen=True)
class ShapeState:
    """What is settled of one shape, and what is left."""

    shape: GemmShape
    rows: tuple[ProfilerRow, ...]
    blamed: tuple[Blamed, ...]
    left: tuple[str, ...]

    @property
    def settled(self) -> int:
        """How many kernels are."""
        return len({row.operation for row in self.rows}) + len(self.blamed)

    def results(self, gpu: GpuCard) -> tuple[list[Measured], list[Failed]]:
        """Of the shape; every kernel is in one of the two. Where there is none, a failure without a name says so."""
        measured: list[Measured] = []
        known = Product.of(self.shape).model_dump()
        failed = [
            Failed(**known, kernel=one.kernel, status=one.status, reason=one.reason) for one in self.blamed
        ]
        if not self.settled and not self.left:
            failed.append(Failed(**known, status="unsupported", reason="the profiler has no kernel for it"))
        for row in self.rows:
            result = to_result(row, self.shape, gpu)
            if isinstance(result, Measured):
                measured.append(result)
            else:
                failed.append(result)
        return measured, failed


class ProfilerSweep:
    """One folder's sweep."""

    def __init__(self, profiler: CutlassProfiler, folder: Path, gpu: GpuCard) -> None:
        """Raises UsageError for a binary that is none, or a folder whose times are of another one, other flags or
        another card.
        """
        self.profiler, self.folder = profiler, folder
        if not os.access(profiler.binary, os.X_OK) or profiler.binary.is_dir():
            raise UsageError(f"{profiler.binary} is no program; give the cutlass_profiler that you built")
        self.settings = SweepSettings(
            schema=1,
            profiler_sha256=sha256_of(profiler.binary),
            flags=profiler.flags,
            told_sha256=_sha256(_told(profiler)),
            gpu=gpu,
        )
        claim(folder, "sweep.json", self.settings)

    def run(self, shape: GemmShape, watch: Callable[[ShapeState], None]) -> ShapeState:
        """All that is left of a shape. `watch` sees what is settled after each process.

        Raises UsageError for a product of experts, or where another sweep is at work in the folder; MachineError where
        the profiler begins no kernel.
        """
        problem_arguments(shape)
        folder = self._folder(shape)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            kernels = self._kernels(shape, folder)
            state, speechless = _read(shape, folder, kernels), 0
            watch(state)
            while before := state.left:
                log = self._run_process(shape, folder, before[:KERNELS_AT_ONCE])
                state = _read(shape, folder, kernels)
                watch(state)
                speechless = speechless + 1 if state.left == before else 0
                if speechless == SPEECHLESS:
                    raise MachineError(f"{self.profiler.binary} ends before it begins a kernel; read {log}")
        return state

    def write_results(self, shapes: Sequence[GemmShape]) -> ProviderResults:
        """Of those of these shapes that were begun, into the folder's file of results."""
        states = [_read(shape, folder, kernels) for shape, folder, kernels in self._begun(shapes)]
        parts = [state.results(self.settings.gpu) for state in states]
        results = ProviderResults(
            schema=1,
            provider=PROVIDER,
            gpu=self.settings.gpu,
            software=software_of(self.profiler.binary, self.settings.profiler_sha256),
            digest=self.settings.digest,
            cache="cold",
            results=tuple(one for measured, _ in parts for one in measured),
            failed=tuple(one for _, failed in parts for one in failed),
        )
        write(self.folder / RESULTS, results.model_dump_json(by_alias=True, indent=1) + "\n")
        return results

    def _begun(self, shapes: Sequence[GemmShape]) -> Iterator[tuple[GemmShape, Path, tuple[str, ...]]]:
        for shape in shapes:
            folder = self._folder(shape)
            if (folder / "kernels").exists():
                yield shape, folder, _kernels_in(folder)

    def _folder(self, shape: GemmShape) -> Path:
        return self.folder / f"{shape.dtype}_{shape.sizes}"

    def _kernels(self, shape: GemmShape, folder: Path) -> tuple[str, ...]:
        """Those that the profiler would run, asked once. Raises UsageError where it does not say."""
        if not (folder / "kernels").exists():
            output, log = folder / "list", folder / "list.log"
            csv_of(output).unlink(missing_ok=True)
            command = self.profiler.list_kernels(shape, output.name)
            end = run(command, folder, log, csv_of(output), self.profiler.silent_seconds)
            names = dict.fromkeys(row.operation for row in _rows(output))
            if end.exit_code or not csv_of(output).exists():
                raise UsageError(
                    f"{self.profiler.binary} lists no kernels for {shape.name} ({end.describe()}); read {log}, or run "
                    f"it yourself: {' '.join(command)}"
                )
            write(folder / "kernels", "\n".join(names) + "\n")
        return _kernels_in(folder)

    def _run_process(self, shape: GemmShape, folder: Path, kernels: Sequence[str]) -> Path:
        """Its log."""
        output = folder / str(len(_attempts(folder)) + 1)
        asked, log = output.with_suffix(".asked"), output.with_suffix(".log")
        write(asked, self.profiler.kernel_list(shape, kernels))
        command = self.profiler.run_kernels(shape, output.name, asked.name)
        end = run(command, folder, log, csv_of(output), self.profiler.silent_seconds)
        write(output.with_suffix(".end"), end.model_dump_json() + "\n")
        return log


def _read(shape: GemmShape, folder: Path, kernels: Sequence[str]) -> ShapeState:
    """From the files of every process that was begun."""
    left, rows, blamed = list(kernels), list[ProfilerRow](), list[Blamed]()
    for output in _attempts(folder):
        found = _settled(output, left)
        rows += found.rows
        blamed += found.blamed
        left = [kernel for kernel in left if kernel not in found.kernels]
    return ShapeState(shape, tuple(rows), tuple(blamed), tuple(left))


def _settled(output: Path, left: Sequence[str]) -> Settled:
    asked = {line.partition(",")[0] for line in output.with_suffix(".asked").read_text().splitlines()[1:]}
    left = [kernel for kernel in left if kernel in asked]
    log, end_file = output.with_suffix(".log"), output.with_suffix(".end")
    end = ProcessEnd.model_validate_json(end_file.read_bytes()) if end_file.exists() else None
    return settle(left, _rows(output), log.read_text(errors="replace") if log.exists() else "", end)


def _attempts(folder: Path) -> list[Path]:
    """Of the processes in their order, what their files' names begin with."""
    return [path.with_suffix("") for path in sorted(folder.glob("*.asked"), key=lambda path: int(path.stem))]


def _rows(output: Path) -> tuple[ProfilerRow, ...]:
    """Of whole lines: what a process was at when it was killed may look like a row."""
    path = csv_of(output)
    text = path.read_text(errors="replace") if path.exists() else ""
    return read_csv(text[: text.rfind("\n") + 1]).rows


def _told(profiler: CutlassProfiler) -> list[str]:
    """Beside the binary and the caller's flags."""
    shapes = [GemmShape("", 1, 1, 1, dtype) for dtype in ELEMENTS]
    return [word for shape in shapes for word in profiler.command(shape)[1 : -len(profiler.flags) or None]]


def _sha256(words: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _kernels_in(folder: Path) -> tuple[str, ...]:
    return tuple((folder / "kernels").read_text().split())
