"""Python started behind a border with the first GPU granted."""

from __future__ import annotations

import time
from pathlib import Path

from hillclimb.harness.sandbox.rungs.choose import Confinement
from tests.harness.sandbox.inside import Inside, Start

MEMORY_BYTES = 32 << 30
SCRATCH_BYTES = 1 << 30


def nodes() -> tuple[str, ...]:
    """Every device node of the first GPU."""
    names = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    shared = sorted(Path("/dev/nvidia-caps").glob("nvidia-cap*"))
    return tuple(str(path) for path in (*(Path("/dev") / name for name in names), *shared) if path.exists())


class WithGpu(Start):
    """Starts Python with the device nodes."""

    tools = False

    def confine(self, memory: int) -> Confinement:
        return Confinement(self.workspace, MEMORY_BYTES, SCRATCH_BYTES, devices=nodes(), tools=self.tools)


def await_word(running: Inside, word: bytes, seconds: float = 120) -> str:
    """Wait until it has printed a word, or ended; all that it printed."""
    deadline = time.monotonic() + seconds
    while word not in b"".join(running.pieces) and running.confined.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return b"".join(running.pieces).decode()
