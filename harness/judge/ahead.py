"""What is done for a side before its turn: compiled for the GPU without touching it, while another side is measured.

A process without device nodes calls the kernel on arrays without contents, so that Triton compiles and nothing is
launched (harness.candidate.compiling). What it leaves in its cache, the side's later processes find there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.candidate.layout import Shapes
from harness.candidate.process import CandidateProcess
from harness.errors import CandidateFault
from harness.judge import kernels
from harness.records import Side

Start = Callable[[Side, Path | None], CandidateProcess]
"""A process that compiles one side, given the folder of kernels that it may start from."""


@dataclass
class Compilation:
    """One side's, under way or over."""

    process: CandidateProcess | None
    folder: Path
    """Where its kernels lie, once it is over."""
    fault: CandidateFault | None = None


class Ahead:
    """Compilations by side. At most `most` are under way; the oldest one gives way to a new one."""

    def __init__(self, start: Start, problems: dict[str, Shapes], most: int) -> None:
        self._start, self._problems, self._most = start, problems, most
        self._root = Path(tempfile.mkdtemp(prefix="hillclimb-kernels-"))
        self._root.chmod(0o755)
        self._known: dict[str, Compilation] = {}

    def close(self) -> None:
        for compilation in self._known.values():
            if compilation.process is not None:
                compilation.process.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def prepare(self, side: Side, parent: Side | None = None) -> None:
        """Begin to compile a side, from the kernels of the one it comes from; returns at once."""
        if side.model_dump_json() in self._known:
            return
        self._make_room()
        seed = self._known.get(parent.model_dump_json()) if parent else None
        folder = Path(tempfile.mkdtemp(dir=self._root))
        folder.chmod(0o755)
        compilation = Compilation(None, folder)
        try:
            compilation.process = self._start(side, seed.folder if seed and seed.process is None else None)
            compilation.process.begin_compile_ahead(self._problems)
        except CandidateFault as fault:
            compilation.fault = fault
        self._known[side.model_dump_json()] = compilation

    def kernels(self, side: Side) -> Path:
        """The folder of a side's kernels, waiting for its compilation. Raises CandidateFault where that failed."""
        self.prepare(side)
        compilation = self._known[side.model_dump_json()]
        self._finish(compilation)
        if compilation.fault is not None:
            raise compilation.fault
        return compilation.folder

    def forget(self, side: Side) -> None:
        """Let go of a side that will not be asked about again."""
        compilation = self._known.pop(side.model_dump_json(), None)
        if compilation is not None:
            if compilation.process is not None:
                compilation.process.close()
            shutil.rmtree(compilation.folder, ignore_errors=True)

    def tend(self) -> None:
        """Finish what is finished, without waiting."""
        for compilation in self._known.values():
            if compilation.process is not None and compilation.process.has_answered():
                self._finish(compilation)

    def _finish(self, compilation: Compilation) -> None:
        process, compilation.process = compilation.process, None
        if process is None:
            return
        with process:
            try:
                process.finish_compile_ahead()
                kernels.collect(process.scratch(), "triton", compilation.folder)
            except CandidateFault as fault:
                compilation.fault = fault

    def _make_room(self) -> None:
        under_way = [key for key, compilation in self._known.items() if compilation.process is not None]
        for key in under_way[: len(under_way) - self._most + 1]:
            process = self._known.pop(key).process
            assert process is not None
            process.close()
