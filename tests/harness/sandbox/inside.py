"""Running a piece of Python behind the border and reading what it printed."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hillclimb.harness.sandbox.rungs.choose import Confinement, ExitStatus, Rung, SandboxedProcess

MEMORY_BYTES = 1 << 30
SCRATCH_BYTES = 8 << 20


@dataclass
class Inside:
    """A confined Python and its collected output."""

    confined: SandboxedProcess
    collector: threading.Thread
    pieces: list[bytes]

    def finish(self, seconds: float = 60) -> tuple[ExitStatus | None, str]:
        """Wait for its end; its exit and everything it printed."""
        ending = self.confined.wait(seconds)
        self.confined.kill()
        self.collector.join(10)
        return ending, b"".join(self.pieces).decode()


@dataclass
class Start:
    """Starts Python in a rung, and ends what a test leaves running."""

    rung: Rung
    workspace: Path
    started: list[Inside] = field(default_factory=list)

    def __call__(
        self,
        code: str,
        *arguments: str,
        memory: int = MEMORY_BYTES,
        environment: Mapping[str, str] | None = None,
        descriptors: tuple[int, ...] = (),
        hidden: tuple[str, ...] = (),
    ) -> Inside:
        output, theirs = os.pipe()
        confinement = replace(
            self.confine(memory),
            environment=environment or {},
            descriptors=descriptors,
            output=theirs,
            hidden=hidden,
        )
        try:
            confined = self.rung.spawn([sys.executable, "-c", code, *arguments], confinement)
        finally:
            os.close(theirs)
        pieces: list[bytes] = []
        collector = threading.Thread(target=_collect, args=(output, pieces))
        collector.start()
        self.started.append(Inside(confined, collector, pieces))
        return self.started[-1]

    def confine(self, memory: int) -> Confinement:
        """What each is given, beside what a test asks for."""
        return Confinement(self.workspace, memory, SCRATCH_BYTES)

    def end_all(self) -> None:
        for inside in self.started:
            inside.confined.kill()
            inside.collector.join(10)


def _collect(descriptor: int, pieces: list[bytes]) -> None:
    with open(descriptor, "rb", buffering=0) as pipe:
        while piece := pipe.read(65536):
            pieces.append(piece)
