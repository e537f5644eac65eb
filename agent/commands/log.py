"""`--log-file`: what a long command tells, kept in a file as well, each line with its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeVar

import typer

from hillclimb.agent.screen.escaping import escape_lines
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records.record import Record

if TYPE_CHECKING:
    from hillclimb.harness.records import Progress, Watch

Found = TypeVar("Found", bound=Record)

LogOption = Annotated[
    Path | None,
    typer.Option("--log-file", metavar="FILE", help="Add phases and results to this file, with times."),
]


class TimedLog:
    """A text stream that puts the time before every line. It writes nothing where there is no file."""

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO | None = None
        self._phase = ""
        try:
            self._file = path.open("a", encoding="utf-8", errors="replace") if path else None
        except OSError as error:
            raise UsageError(
                f"--log-file {path}: cannot be written ({error.strerror}); name a file in a folder that is there"
            ) from None

    def write(self, text: str) -> int:
        """Lines, each with its time; raises OSError where the disk refuses."""
        if self._file:
            now = datetime.fromtimestamp(time.time()).isoformat(sep=" ", timespec="seconds")
            self._file.writelines(f"{now} {line}\n" for line in text.splitlines())
        return len(text)

    def flush(self) -> None:
        if self._file:
            self._file.flush()

    def show(self, found: Found, describe: Callable[[Found], str], *, json: bool) -> None:
        """A record to stdout and into the file: JSON, or lines in which what is not for display is spelled out."""
        text = found.model_dump_json() if json else escape_lines(describe(found))
        print(text)
        self.write(text)
        self.flush()

    def watching(self, watch: Watch) -> Watch:
        """Tells of a measurement what `watch` does, and each phase of it into the file."""

        def both(progress: Progress) -> None:
            watch(progress)
            if progress.stage != self._phase:
                self._phase = progress.stage
                self.write(f"phase: {progress.stage}")
                self.flush()

        return both
