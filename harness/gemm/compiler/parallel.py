"""Many sources compiled at once, each by a process of its own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from hillclimb.harness.errors import MachineError
from hillclimb.harness.gemm.compiler.store import DIAGNOSTICS, OUTPUT_OF, Build, BuildStore, CompileJob
from hillclimb.harness.gemm.compiler.verdict import machine_fault
from hillclimb.harness.gemm.processes import ProcessGroup, ProcessGroups
from hillclimb.harness.wording import count

POLL_SECONDS = 0.02
LOOK_SECONDS = 1.0
"""That may lie between two looks at a compiler."""

JOB_SECONDS = 1200.0
"""After which a compiler is given up."""


@dataclass(frozen=True)
class CompileEnd:
    """What came of one source."""

    job: CompileJob
    found: Build | MachineError
    """A verdict on it, or none by the machine's fault, as for want of memory."""
    is_kept: bool = False
    """Whether the store had it before."""

    def __str__(self) -> str:
        if isinstance(self.found, MachineError):
            return str(self.found)
        return f"{self.job.name} {self.found.record.outcome} in {self.found.record.seconds:.1f} s"


@dataclass
class CompileRun:
    """Sources on their way through the compiler. `watch` sees what came of each, and how many ended of how many."""

    store: BuildStore
    workers: int
    seconds: float = JOB_SECONDS
    watch: Callable[[CompileEnd, int, int], None] = lambda *_: None
    _running: dict[str, _Compiler] = field(default_factory=dict)

    def __call__(self, jobs: Iterable[CompileJob]) -> list[Build]:
        """Builds in the order of the jobs; what the store has is not compiled again.

        Raises MachineError, at the end, where a compiler ended by the machine's fault. All others are kept.
        """
        asked = [(self.store.key(job), job) for job in jobs]
        builds: dict[str, Build] = {}
        faults = []
        total = len(dict(asked))
        with closing(self.ends(job for _, job in asked)) as ends:
            for end in ends:
                if isinstance(end.found, MachineError):
                    faults.append(end.found)
                else:
                    builds[self.store.key(end.job)] = end.found
                if not end.is_kept:
                    self.watch(end, len(builds) + len(faults), total)
        raise_any(faults)
        return [builds[key] for key, _ in asked]

    def ends(self, jobs: Iterable[CompileJob]) -> Generator[CompileEnd]:
        """What came of each source as it comes, once of those that are the same; what the store has comes first."""
        waiting: dict[str, CompileJob] = {}
        for key, job in {self.store.key(job): job for job in jobs}.items():
            if found := self.store.find(job, self.seconds):
                yield CompileEnd(job, found, is_kept=True)
            else:
                waiting[key] = job
        if waiting:
            yield from self._compile(waiting)

    def _compile(self, waiting: dict[str, CompileJob]) -> Iterator[CompileEnd]:
        left = list(reversed(waiting.items()))
        with ProcessGroups() as groups:
            try:
                while left or self._running:
                    while left and len(self._running) < self.workers:
                        key, job = left.pop()
                        self._running[key] = _Compiler(self.store, job, groups)
                    yield from self._settle()
            finally:
                for compiler in self._running.values():
                    compiler.end()
                self._running.clear()

    def _settle(self) -> Iterator[CompileEnd]:
        """What ended since it was last asked, after a moment where nothing did."""
        ended = {key: one for key, one in self._running.items() if one.has_ended(self.seconds)}
        for key, compiler in ended.items():
            del self._running[key]
            yield CompileEnd(compiler.job, compiler.settle())
        if not ended:
            time.sleep(POLL_SECONDS)


def raise_any(faults: Sequence[MachineError]) -> None:
    """The first, and how many more there are."""
    if faults:
        first, more = faults[0], len(faults) - 1
        raise MachineError(f"{first}. {count(more, 'other compiler')} likewise" if more else str(first))


class _Compiler:
    """One process."""

    def __init__(self, store: BuildStore, job: CompileJob, groups: ProcessGroups) -> None:
        self.store, self.job = store, job
        self.draft = store.draft(job)
        self.seconds = 0.0
        self._seen = time.monotonic()
        self.is_late = False
        try:
            self.group = self._start(groups)
        except BaseException:
            self.draft.remove()
            raise

    def _start(self, groups: ProcessGroups) -> ProcessGroup:
        folder = self.draft.folder
        with (folder / DIAGNOSTICS).open("wb") as file:
            return groups.start(
                self.store.command(self.job),
                cwd=folder,
                env={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def has_ended(self, seconds: float) -> bool:
        """Also where it is ended, for it has taken so many. Time in which nobody looked hardly counts, as in a
        container that was paused.
        """
        now = time.monotonic()
        self.seconds += min(now - self._seen, LOOK_SECONDS)
        self._seen = now
        if not self.group.has_ended() and self.seconds > seconds:
            self.is_late = True
            self.group.end()
        return self.group.has_ended()

    def settle(self) -> Build | MachineError:
        """What it made, or why that says nothing of the source; the store may be at fault as well."""
        seconds, folder = self.seconds, self.draft.folder
        status = self.group.process.returncode
        try:
            if self.is_late:
                return self.store.keep(self.job, folder, "timed_out", seconds)
            if status == 0 and (folder / OUTPUT_OF[self.job.output]).exists():
                return self.store.keep(self.job, folder, "built", seconds)
            if fault := machine_fault((folder / DIAGNOSTICS).read_text(errors="replace"), status):
                raise MachineError(f"the compiler of {self.job.name} {fault}")
            return self.store.keep(self.job, folder, "failed", seconds)
        except MachineError as error:
            return error
        finally:
            self.draft.remove()

    def end(self) -> None:
        """With all that it started, and what it wrote."""
        self.group.end()
        self.draft.remove()
