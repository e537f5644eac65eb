"""What the compiler made of sources, kept by all that decides it: source, flags, compiler and headers.

A failure is kept as well, with what the compiler wrote: the same source would fail again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.compiler.cutlass import Headers
from hillclimb.harness.gemm.compiler.drafts import Draft
from hillclimb.harness.gemm.compiler.ptxas import KernelFacts, read_kernels
from hillclimb.harness.gemm.compiler.toolkit import Toolkit
from hillclimb.harness.gemm.folder import locked, sha256_of
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
REPLACED = "replaced"
ORDER: tuple[BuildOutcome, ...] = ("timed_out", "failed", "built")
"""What says more of a source comes later."""


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
        """Raises UsageError where nvcc would take a folder's name for two."""
        for named in (folder, *headers.folders):
            if "," in str(named.absolute()):
                raise UsageError(f"nvcc takes {named.absolute()} for two folders; give one without a comma")
        self.folder, self.toolkit, self.headers = folder, toolkit, headers

    def key(self, job: CompileJob) -> str:
        """sha256 of what decides the output."""
        decides = [
            *(job.source, job.output, job.flags),
            *(self.toolkit.digest, self.headers.digest),
        ]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()

    def find(self, job: CompileJob, seconds: float) -> Build | None:
        """What is kept of it. One that was given up counts where it had had as many seconds as it would get now, and
        one whose files were damaged does not.
        """
        found = self._valid(self._folder(self.key(job)))
        if found and found.record.outcome == "timed_out" and found.record.seconds < seconds:
            return None
        return found

    def draft(self, job: CompileJob) -> Draft:
        """For a compiler to work in, with the source in it."""
        draft = Draft(self.folder)
        try:
            (draft.folder / SOURCE).write_text(job.source)
        except BaseException:
            draft.remove()
            raise
        return draft

    def command(self, job: CompileJob) -> list[str]:
        """To be run in the draft's folder."""
        includes = [f"-I{folder}" for folder in self.headers.folders]
        flags = [*FLAGS_OF[job.output], *job.flags, *includes]
        return [str(self.toolkit.nvcc), *flags, "-o", OUTPUT_OF[job.output], SOURCE]

    def keep(self, job: CompileJob, draft: Path, outcome: BuildOutcome, seconds: float) -> Build:
        """The draft, with its record, as what the source became. What another process kept meanwhile stays, unless this
        says more.
        """
        diagnostics = (draft / DIAGNOSTICS).read_text(errors="replace")
        output = OUTPUT_OF[job.output] if outcome == "built" else ""
        record = BuildRecord(
            schema=1,
            name=job.name,
            outcome=outcome,
            seconds=round(seconds, 3),
            output=output,
            output_sha256=sha256_of(draft / output) if output else "",
            kernels=read_kernels(diagnostics),
        )
        (draft / RECORD).write_text(record.model_dump_json(by_alias=True, indent=1) + "\n")
        folder = self._folder(self.key(job))
        with locked(folder.parent, waits=True):
            before = self._valid(folder)
            if before and _worth(before.record) >= _worth(record):
                return before
            if folder.exists():
                folder.rename(draft / REPLACED)
            draft.rename(folder)
        shutil.rmtree(folder / REPLACED, ignore_errors=True)
        return Build(record, folder)

    def _valid(self, folder: Path) -> Build | None:
        """None where there is none, or where its files were damaged. Raises MachineError where they cannot be read."""
        try:
            record = BuildRecord.model_validate_json((folder / RECORD).read_bytes())
            if record.outcome == "built" and sha256_of(folder / record.output) != record.output_sha256:
                return None
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None
        except OSError as error:
            raise MachineError(f"{folder} cannot be read ({error.strerror}); is it another user's?") from None
        return Build(record, folder)

    def _folder(self, key: str) -> Path:
        return self.folder / key[:2] / key


def _worth(record: BuildRecord) -> tuple[int, float]:
    """One that was given up says more the longer it was tried."""
    return ORDER.index(record.outcome), record.seconds if record.outcome == "timed_out" else 0.0
