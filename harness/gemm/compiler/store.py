"""What the compiler made of sources, kept by all that decides it: source, flags, compiler and headers.

A failure is kept as well, with what the compiler wrote: the same source would fail again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hillclimb.harness.gemm.compiler.cutlass import Headers
from hillclimb.harness.gemm.compiler.ptxas import KernelFacts, read_kernels
from hillclimb.harness.gemm.compiler.toolkit import Toolkit
from hillclimb.harness.records.record import Record

OutputKind = Literal["object", "cubin", "shared"]
BuildOutcome = Literal["built", "failed", "timed_out"]

FLAGS_OF: dict[OutputKind, tuple[str, ...]] = {
    "object": ("-c",),
    "cubin": ("-cubin",),
    "shared": ("-shared", "-Xcompiler", "-fPIC"),
}
OUTPUT_OF: dict[OutputKind, str] = {"object": "output.o", "cubin": "output.cubin", "shared": "output.so"}
"""nvcc goes by the end of a name."""

SOURCE, DIAGNOSTICS, RECORD = "source.cu", "diagnostics", "built.json"
DRAFTS = "drafts"


class BuildRecord(Record):
    """What became of one source."""

    schema_version: Literal[1] = Field(1, alias="schema")
    name: str
    outcome: BuildOutcome
    seconds: float
    """Of the wall clock, beside whatever else was compiled then."""
    output: str = ""
    """Name of the file in the build's folder; empty where there is none."""
    output_sha256: str = ""
    kernels: tuple[KernelFacts, ...] = ()


@dataclass(frozen=True)
class CompileJob:
    """One file to be compiled."""

    name: str
    """For people; it decides nothing."""
    source: str
    flags: tuple[str, ...] = ()
    output: OutputKind = "object"


@dataclass(frozen=True)
class Build:
    """A record and where its files are."""

    record: BuildRecord
    folder: Path

    @property
    def is_built(self) -> bool:
        return self.record.outcome == "built"

    @property
    def output(self) -> Path:
        return self.folder / self.record.output

    @property
    def diagnostics(self) -> str:
        """All that the compiler wrote."""
        return (self.folder / DIAGNOSTICS).read_text(errors="replace")


class BuildStore:
    """A folder of builds by one compiler with these headers. Several processes may use it at once."""

    def __init__(self, folder: Path, toolkit: Toolkit, headers: Headers = Headers()) -> None:  # noqa: B008 - it is frozen
        self.folder, self.toolkit, self.headers = folder, toolkit, headers

    def key(self, job: CompileJob) -> str:
        """sha256 of what decides the output."""
        decides = [
            *(job.source, job.output, job.flags),
            *(self.toolkit.version, self.headers.digest),
        ]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()

    def find(self, job: CompileJob, seconds: float) -> Build | None:
        """What is kept of it. One that was given up counts where it had had as many seconds as it would get now, and
        one whose files were damaged does not.
        """
        folder = self._folder(self.key(job))
        try:
            record = BuildRecord.model_validate_json((folder / RECORD).read_bytes())
            if record.outcome == "built" and _sha256(folder / record.output) != record.output_sha256:
                return None
        except (OSError, ValidationError):
            return None
        if record.outcome == "timed_out" and record.seconds < seconds:
            return None
        return Build(record, folder)

    def draft(self, job: CompileJob) -> Path:
        """A new folder for a compiler to work in; what lies in drafts of processes that are gone is removed."""
        drafts = self.folder / DRAFTS
        drafts.mkdir(parents=True, exist_ok=True)
        for old in drafts.iterdir():
            if not Path("/proc", old.name.partition("-")[0]).exists():
                shutil.rmtree(old, ignore_errors=True)
        draft = drafts / f"{os.getpid()}-{self.key(job)}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        (draft / SOURCE).write_text(job.source)
        return draft

    def command(self, job: CompileJob) -> list[str]:
        """To be run in the draft's folder."""
        includes = [f"-I{folder}" for folder in self.headers.folders]
        flags = [*FLAGS_OF[job.output], *job.flags, *includes]
        return [str(self.toolkit.nvcc), *flags, "-o", OUTPUT_OF[job.output], SOURCE]

    def keep(self, job: CompileJob, draft: Path, outcome: BuildOutcome, seconds: float) -> Build:
        """The draft, with its record, as what the source became."""
        diagnostics = (draft / DIAGNOSTICS).read_text(errors="replace")
        output = OUTPUT_OF[job.output] if outcome == "built" else ""
        record = BuildRecord(
            schema=1,
            name=job.name,
            outcome=outcome,
            seconds=round(seconds, 3),
            output=output,
            output_sha256=_sha256(draft / output) if output else "",
            kernels=read_kernels(diagnostics),
        )
        (draft / RECORD).write_text(record.model_dump_json(by_alias=True, indent=1) + "\n")
        folder = self._folder(self.key(job))
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            draft.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(draft, ignore_errors=True)
        return Build(record, folder)

    def _folder(self, key: str) -> Path:
        return self.folder / key[:2] / key


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
