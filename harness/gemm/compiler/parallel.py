"""Many sources compiled at once, each by a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.harness.errors import MachineError
from hillclimb.harness.gemm.compiler.store import DIAGNOSTICS, OUTPUT_OF, Build, BuildStore, CompileJob
from hillclimb.harness.gemm.processes import dying_with_parent

POLL_SECONDS = 0.02
JOB_SECONDS = 1200.0
"""After which a compiler is given up."""

BYTES_A_JOB = 2 << 30
"""Memory that a compiler of CUTLASS's templates takes."""

KILLED = "died due to signal"
"""What nvcc says of a tool of its own that was killed."""

ABSENT_HEADER = re.compile(
    r"fatal error: (\S+): No such file or directory|cannot open source file \"([^\"]+)\""
)


def default_jobs() -> int:
    """How many compilers this machine carries."""
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line)
    return max(1, min(len(os.sched_getaffinity(0)), int(memory.split()[1]) * 1024 // BYTES_A_JOB))


@dataclass
class CompileRun:
    """Sources on their way through the compiler. `watch` sees each build, and how many there are of how many."""

    store: BuildStore
    workers: int
    seconds: float = JOB_SECONDS
    watch: Callable[[Build, int, int], None] = lambda *_: None
    _running: dict[str, _Compiler] = field(default_factory=dict)

    def __call__(self, jobs: Iterable[CompileJob]) -> list[Build]:
        """Builds in the order of the jobs; what the store has is not compiled again.

        Raises MachineError where a compiler was killed, as for want of memory: that is no verdict on a source.
        """
        asked = [(self.store.key(job), job) for job in jobs]
        builds: dict[str, Build] = {}
        waiting: dict[str, CompileJob] = {}
        for key, job in asked:
            if found := self.store.find(job, self.seconds):
                builds[key] = found
            else:
                waiting[key] = job
        total = len(builds) + len(waiting)
        try:
            for key, build in self._compile(waiting):
                builds[key] = build
                self.watch(build, len(builds), total)
        finally:
            for compiler in self._running.values():
                compiler.end()
            self._running.clear()
        return [builds[key] for key, _ in asked]

    def _compile(self, waiting: dict[str, CompileJob]) -> Iterator[tuple[str, Build]]:
        left = iter(waiting.items())
        is_more = True
        while is_more or self._running:
            while is_more and len(self._running) < self.workers:
                key, job = next(left, ("", None))
                is_more = job is not None
                if job is not None:
                    self._running[key] = _Compiler(self.store, job)
            ended = {key: one for key, one in self._running.items() if one.has_ended(self.seconds)}
            for key, compiler in ended.items():
                del self._running[key]
                yield key, compiler.settle()
            if not ended:
                time.sleep(POLL_SECONDS)


class _Compiler:
    """One process."""

    def __init__(self, store: BuildStore, job: CompileJob) -> None:
        self.store, self.job = store, job
        self.draft = store.draft(job)
        self.since = time.monotonic()
        self.is_late = False
        self.process = _start(store.command(job), self.draft)

    def has_ended(self, seconds: float) -> bool:
        """Also where it is ended, for it has taken so many."""
        if self.process.poll() is None and time.monotonic() - self.since > seconds:
            self.is_late = True
            self.end()
        return self.process.poll() is not None

    def settle(self) -> Build:
        """What it made. Raises MachineError where it was killed by somebody else, or found no header: that is not the
        source's fault.
        """
        seconds = time.monotonic() - self.since
        if self.is_late:
            return self.store.keep(self.job, self.draft, "timed_out", seconds)
        told = (self.draft / DIAGNOSTICS).read_text(errors="replace")
        if self.process.returncode < 0 or (self.process.returncode and KILLED in told):
            last = told.strip().rpartition("\n")[2]
            raise MachineError(
                f"the compiler of {self.job.name} was killed ({last or self.process.returncode}); where memory is "
                "short, fewer --jobs take less of it"
            )
        if absent := ABSENT_HEADER.search(told):
            raise MachineError(
                f"the compiler of {self.job.name} finds no {absent[1] or absent[2]}; {self.store.toolkit.nvcc} has not "
                "all headers of a CUDA toolkit, another --nvcc may"
            )
        is_built = self.process.returncode == 0 and (self.draft / OUTPUT_OF[self.job.output]).exists()
        return self.store.keep(self.job, self.draft, "built" if is_built else "failed", seconds)

    def end(self) -> None:
        """With all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _start(command: Sequence[str], draft: Path) -> subprocess.Popen[bytes]:
    with (draft / DIAGNOSTICS).open("wb") as file:
        return subprocess.Popen(
            command,
            cwd=draft,
            env={
                **os.environ,
                "TMPDIR": str(draft.resolve()),
            },  # so that nothing is left elsewhere when it is killed
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=dying_with_parent(),  # noqa: PLW1509 - one call of libc; this process has one thread
        )
