"""What is done for a side before its turn: compiled for the GPU without touching it, while another side is measured.

A process without device nodes calls the kernel on arrays without contents, so that Triton compiles and nothing is
launched (harness.candidate.compiling). What it leaves in its cache, the side's later processes find there.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.candidate.layout import Signature
from harness.candidate.process import CandidateProcess
from harness.errors import CandidateFault, SandboxError
from harness.judge import kernels
from harness.records import Reason, Side
from harness.sandbox.folder import LockedFolder

DOUBTFUL = frozenset({Reason.HUNG, Reason.CRASHED, Reason.EXITED, Reason.OUT_OF_MEMORY, Reason.DOES_NOT_LOAD})
"""Faults that are believed of a compilation only where somebody waited for it."""

MOST_KEPT = 64
"""Sides whose kernels are kept; those used longest ago go first. Some hundred kilobytes each."""

Start = Callable[[Side, Path | None], CandidateProcess]
"""A process that compiles one side, given the folder of kernels that it may start from."""


@dataclass
class Compilation:
    """One side's, under way or over."""

    process: CandidateProcess | None
    folder: Path
    """Where its kernels lie, once it is over."""
    fault: CandidateFault | None = None
    is_asked_for: bool = False
    """Whether somebody waited for it; else it was only announced."""
    began: float = field(default_factory=time.monotonic)

    @property
    def is_doubtful(self) -> bool:
        """Whether its fault may have been the machine's, which was busy with others meanwhile."""
        return self.fault is not None and self.fault.reason in DOUBTFUL and not self.is_asked_for


class Ahead:
    """Compilations by side. At most `most` are under way; the oldest one gives way to a new one."""

    def __init__(self, start: Start, problems: dict[str, Signature], most: int) -> None:
        self._start, self._problems, self._most = start, problems, most
        self._folder: LockedFolder | None = None
        self._known: dict[str, Compilation] = {}

    def close(self) -> None:
        for compilation in self._known.values():
            if compilation.process is not None:
                compilation.process.close()
        if self._folder is not None:
            self._folder.remove()

    def prepare(self, side: Side, parent: Side | None = None) -> None:
        """Begin to compile a side, from the kernels of the one it comes from, else from nothing; returns at once."""
        seed = self._find(parent, alone=False) if parent and parent != side else None
        folder = seed.folder if seed and seed.process is None else None
        if self._find(side, alone=folder is None) is None:
            self._begin(side, folder)

    def kernels(self, side: Side, *, alone: bool = False) -> Path:
        """The folder of a side's kernels, waiting for its compilation; `alone`, of one that began from nothing.

        Raises CandidateFault where that failed.
        """
        compilation = self._find(side, alone=alone)
        if compilation is not None:
            self._finish(compilation)
        if compilation is None or compilation.is_doubtful:
            compilation = self._begin(side, None)
            compilation.is_asked_for = True
            self._finish(compilation)
        if compilation.fault is not None:
            raise compilation.fault
        return compilation.folder

    def _find(self, side: Side, *, alone: bool) -> Compilation | None:
        """What is known of a side; one that began from nothing serves everywhere."""
        for key in (_key(side, alone=True), _key(side, alone=False))[: 1 if alone else 2]:
            if key in self._known:
                self._known[key] = self._known.pop(key)  # the latest used stands last
                return self._known[key]
        return None

    def _begin(self, side: Side, seed: Path | None) -> Compilation:
        self._make_room()
        folder = Path(tempfile.mkdtemp(dir=self._root()))
        folder.chmod(0o755)
        compilation = self._known[_key(side, alone=seed is None)] = Compilation(None, folder)
        with self._forgetting(compilation):
            compilation.process = self._start(side, seed)
            compilation.process.begin_compile_ahead(self._problems)
        return compilation

    @contextmanager
    def _forgetting(self, compilation: Compilation) -> Iterator[None]:
        """A candidate's fault ends its compilation. After any other nothing is known: it begins anew when asked for."""
        try:
            yield
        except CandidateFault as fault:
            compilation.fault = fault
            if compilation.process is not None:
                compilation.process.close()
                compilation.process = None
        except BaseException:
            for key in [key for key, known in self._known.items() if known is compilation]:
                self._drop(key)
            raise

    def tend(self) -> None:
        """Finish what is finished, without waiting, and end what takes too long beside others' measurements.

        What could not even be started is forgotten: when it is its turn, it begins anew.
        """
        for compilation in list(self._known.values()):
            with suppress(SandboxError), self._forgetting(compilation):
                self._look_after(compilation)

    def _look_after(self, compilation: Compilation) -> None:
        process = compilation.process
        if process is None:
            return
        if process.has_compiled_ahead():
            self._finish(compilation)
        elif process.is_overdue(time.monotonic() - compilation.began):
            raise CandidateFault(Reason.HUNG, "did not end to import and compile ahead")
        else:
            process.expect_bounds()

    def _finish(self, compilation: Compilation) -> None:
        process, compilation.process = compilation.process, None
        if process is None:
            return
        with process, self._forgetting(compilation):
            process.finish_compile_ahead()
            kernels.collect(process.scratch(), "triton", compilation.folder)

    def _root(self) -> Path:
        """Made when it is first needed; whoever candidates run as may look into it."""
        if self._folder is None:
            self._folder = LockedFolder.make("kernels")
            self._folder.path.chmod(0o755)
        return self._folder.path

    def _make_room(self) -> None:
        """For one more under way, and one more that is kept."""
        under_way = [key for key, compilation in self._known.items() if compilation.process is not None]
        for key in under_way[: max(0, len(under_way) - self._most + 1)]:
            self._drop(key)
        for key in list(self._known)[: max(0, len(self._known) - MOST_KEPT + 1)]:
            self._drop(key)

    def _drop(self, key: str) -> None:
        compilation = self._known.pop(key)
        if compilation.process is not None:
            compilation.process.close()
        shutil.rmtree(compilation.folder, ignore_errors=True)


def _key(side: Side, *, alone: bool) -> str:
    return f"{'alone' if alone else 'seeded'} {side.model_dump_json()}"
