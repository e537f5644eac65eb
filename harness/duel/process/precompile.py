"""What is done for a side before its turn: compiled for the GPU without touching it, while another side is measured.

A process without device nodes calls the kernel on arrays without contents, so that Triton compiles and nothing is
launched (harness.candidate.offline_compiler). What it leaves in its cache, the side's later processes find there.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.harness.channel.layout import CallSignature, Shapes
from hillclimb.harness.duel.process import kernel_cache
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.errors import CandidateFault, SandboxError
from hillclimb.harness.records import Reason, Side
from hillclimb.harness.sandbox.rungs.locked_folder import LockedFolder

UNCERTAIN_REASONS = frozenset(
    {Reason.HUNG, Reason.CRASHED, Reason.EXITED, Reason.OUT_OF_MEMORY, Reason.DOES_NOT_LOAD}
)
"""Faults that are believed of a compilation only where somebody waited for it."""

MAX_CACHED_SIDES = 64
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
    is_awaited: bool = False
    """Whether somebody waited for it; else it was only announced."""
    began: float = field(default_factory=time.monotonic)

    @property
    def is_uncertain(self) -> bool:
        """Whether its fault may have been the machine's, which was busy with others meanwhile."""
        return self.fault is not None and self.fault.reason in UNCERTAIN_REASONS and not self.is_awaited


class Precompiler:
    """Compilations by side. At most `most` are under way; the oldest one gives way to a new one."""

    def __init__(
        self, start: Start, problems: dict[str, CallSignature], most: int, parameters: Shapes = ()
    ) -> None:
        self._start, self._problems, self._most = start, problems, most
        self._parameters = parameters
        self._folder: LockedFolder | None = None
        self._compilations: dict[str, Compilation] = {}

    def close(self) -> None:
        for compilation in self._compilations.values():
            if compilation.process is not None:
                compilation.process.close()
        if self._folder is not None:
            self._folder.remove()

    def begin(self, side: Side, parent: Side | None = None) -> None:
        """Begin to compile a side, from the kernels of the one it comes from, else from nothing; returns at once."""
        seed = self._find(parent, from_source=False) if parent and parent != side else None
        folder = seed.folder if seed and seed.process is None else None
        if self._find(side, from_source=folder is None) is None:
            self._begin_compilation(side, folder)

    def kernel_folder(self, side: Side, *, from_source: bool = False) -> Path:
        """The folder of a side's kernels, waiting for its compilation; `alone`, of one that began from nothing.

        Raises CandidateFault where that failed.
        """
        compilation = self._find(side, from_source=from_source)
        if compilation is not None:
            self._finish(compilation)
        if compilation is None or compilation.is_uncertain:
            compilation = self._begin_compilation(side, None)
            compilation.is_awaited = True
            self._finish(compilation)
        if compilation.fault is not None:
            raise compilation.fault
        return compilation.folder

    def _find(self, side: Side, *, from_source: bool) -> Compilation | None:
        """What is known of a side; one that began from nothing serves everywhere."""
        for key in (_key(side, from_source=True), _key(side, from_source=False))[: 1 if from_source else 2]:
            if key in self._compilations:
                self._compilations[key] = self._compilations.pop(key)  # the latest used stands last
                return self._compilations[key]
        return None

    def _begin_compilation(self, side: Side, seed: Path | None) -> Compilation:
        self._make_room()
        folder = Path(tempfile.mkdtemp(dir=self._root()))
        folder.chmod(0o755)
        compilation = self._compilations[_key(side, from_source=seed is None)] = Compilation(None, folder)
        with self._dropping_on_error(compilation):
            compilation.process = self._start(side, seed)
            compilation.process.begin_precompile(self._problems, self._parameters)
        return compilation

    @contextmanager
    def _dropping_on_error(self, compilation: Compilation) -> Iterator[None]:
        """A candidate's fault ends its compilation. After any other nothing is known: it begins anew when asked for."""
        with ExitStack() as unless_understood:
            unless_understood.callback(self._forget, compilation)
            try:
                yield
            except CandidateFault as fault:
                compilation.fault = fault
                if compilation.process is not None:
                    compilation.process.close()
                    compilation.process = None
            unless_understood.pop_all()

    def _forget(self, compilation: Compilation) -> None:
        for key in [key for key, known in self._compilations.items() if known is compilation]:
            self._drop(key)

    def poll(self) -> None:
        """Finish what is finished, without waiting, and end what takes too long beside others' measurements.

        What could not even be started is forgotten: when it is its turn, it begins anew.
        """
        for compilation in list(self._compilations.values()):
            with suppress(SandboxError), self._dropping_on_error(compilation):
                self._look_after(compilation)

    def _look_after(self, compilation: Compilation) -> None:
        process = compilation.process
        if process is None:
            return
        if process.has_precompiled():
            self._finish(compilation)
        elif process.is_overdue(time.monotonic() - compilation.began):
            raise CandidateFault(Reason.HUNG, "did not end to import and compile ahead")
        else:
            process.require_bounds()

    def _finish(self, compilation: Compilation) -> None:
        process, compilation.process = compilation.process, None
        if process is None:
            return
        with process, self._dropping_on_error(compilation):
            process.finish_precompile()
            kernel_cache.copy_kernels(process.scratch(), "triton", compilation.folder)

    def _root(self) -> Path:
        """Made when it is first needed; whoever candidates run as may look into it."""
        if self._folder is None:
            self._folder = LockedFolder.make("kernels")
            self._folder.path.chmod(0o755)
        return self._folder.path

    def _make_room(self) -> None:
        """For one more under way, and one more that is kept."""
        under_way = [
            key for key, compilation in self._compilations.items() if compilation.process is not None
        ]
        for key in under_way[: max(0, len(under_way) - self._most + 1)]:
            self._drop(key)
        for key in list(self._compilations)[: max(0, len(self._compilations) - MAX_CACHED_SIDES + 1)]:
            self._drop(key)

    def _drop(self, key: str) -> None:
        compilation = self._compilations.pop(key)
        if compilation.process is not None:
            compilation.process.close()
        shutil.rmtree(compilation.folder, ignore_errors=True)


def _key(side: Side, *, from_source: bool) -> str:
    return f"{'alone' if from_source else 'seeded'} {side.model_dump_json()}"
