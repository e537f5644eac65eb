"""Where poisoned candidates are judged: a case, a judge in a process of its own, and the traces that may not stay.

Everything of the judge's is marked: its environment names the ward, its temporary files lie in the ward's folder, and
its candidates see a workspace out of that folder. So what it leaves behind is found among everything else here. What a
dead parent leaves behind falls to the process that called `adopt_orphans`.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import GateReport, Progress, Reason, Screening, Side
from tests.fakes.cases import CUDA_SETTINGS, SETTINGS, write_case, write_cuda_case, write_workspace
from tests.poison.poison import Poison, Surface, honest_source

PR_SET_CHILD_SUBREAPER = 36

SHARED_MEMORY = Path("/dev/shm")

MARK = "HILLCLIMB_WARD"
ORPHAN_SECONDS = 10.0
"""After this long nothing of a candidate's may live."""

BEFORE_POISON = (None, Reason.SLOWER, Reason.NO_PROVEN_GAIN)
"""On a busy machine a duel may be decided in its first calls, before poison that waits for later ones is taken."""

TRIALS = 5

BUDGETS = {"cpu": "prepare_seconds: 20, call_seconds: 2", "gpu": "prepare_seconds: 30, call_seconds: 2"}
"""Short ones, since whatever hangs takes all of them; long enough for an honest import on a machine full of others.
The first call has the budget of the preparation."""

IMPORTS = (
    "[__future__, array, pathlib, typing, numpy, os, os.*, sys, time, math, ctypes, threading, signal, subprocess, "
    "mmap, re, itertools"
)


def write_ward_case(root: Path, surface: Surface) -> Path:
    """y = 2 x + 1 with short budgets and a policy that lets every poison past the reading of its source.

    On a CPU only what is nearly twice as fast is a gain, and few pairs decide: identical kernels leave after some
    blocks, however busy the machine is.
    """
    if surface == "cpu":
        settings = SETTINGS.replace("prepare_seconds: 10, call_seconds: 2", BUDGETS["cpu"])
        settings = settings.replace("minimum_effect: 0.02", "minimum_effect: 0.9")
        settings = settings.replace("pair_blocks: 2, max_pairs: 10", "pair_blocks: 1, max_pairs: 3")
        lines = [
            f"  imports: {IMPORTS}, numba]" if "imports:" in line else line for line in settings.split("\n")
        ]
        return write_case(root, honest_source("cpu"), "\n".join(lines))
    folder = write_cuda_case(root, honest_source("gpu"))
    files = 'mutable: ["*.py", "*.cu", "knobs.yaml", "docs/**"]\n'
    settings = CUDA_SETTINGS.replace("prepare_seconds: 60, call_seconds: 20", BUDGETS["gpu"])
    policy = f"policy: {{library_calls: true, graphs: true, imports: {IMPORTS}, torch, triton, cuda]}}"
    settings = settings.replace("policy: {imports: [torch, triton]}", policy)
    (folder / "case.yaml").write_text(settings + files + "cuda: {sanitizers: []}\n")
    return folder


@dataclass(frozen=True)
class Traces:
    """What a judge holds, and what of it lies about."""

    resident: int
    """Bytes of the judge's own memory."""
    shared: int
    """Bytes of shared memory that it has mapped."""
    descriptors: int
    processes: frozenset[int]
    """Pids of the living that are the ward's, the judge included."""
    files: frozenset[str]
    """What lies in the ward's temporary folder, and of the ward in /dev/shm."""

    def orphans_since(self, before: Traces) -> frozenset[int]:
        return came_to_stay(self.processes, before.processes)


def came_to_stay(now: Set[int], before: Set[int]) -> frozenset[int]:
    """Processes that are new, where they are more than have gone.

    A GPU's zygote has one supervisor that stands ready for the next fork, and it is another one every time.
    """
    came, went = now - before, before - now
    return frozenset(came) if len(came) > len(went) else frozenset()


class Ward:
    """A judge of the ward's case."""

    def __init__(self, root: Path, surface: Surface) -> None:
        self.root, self.surface = root, surface
        self.temporary = root / "tmp"
        self.temporary.mkdir()
        self.temporary.chmod(0o1777)
        self.case = write_ward_case(root, surface)
        self.incumbent = Side(tree=str(self.case / "workspace"))
        self.log = root / "judge.log"
        with self._marked():
            self.judge = LocalJudge(self.case, self.log)
        self._trees = 0

    def close(self) -> None:
        self.judge.close()

    @property
    def judge_pid(self) -> int:
        return self.judge._process.pid

    def side(self, source: str, files: dict[str, str] | None = None) -> Side:
        """A workspace with these files."""
        self._trees += 1
        folder = write_workspace(self.root / f"tree-{self._trees}", source)
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        return Side(tree=str(folder))

    def take(self, poison: Poison) -> GateReport | Screening:
        """Judge it: by the gate, or in a duel where it waits for that."""
        side = self.side(poison.source(), dict(poison.files))
        if not poison.is_taken_while_timed:
            return self.judge.gate(side, _ignore)
        for _ in range(TRIALS):
            screening = self.judge.screen(side, self.incumbent, _ignore)
            if screening.reason not in BEFORE_POISON:
                break
        return screening

    def gate_honest(self) -> GateReport:
        return self.judge.gate(self.side(honest_source(self.surface, f"tree {self._trees}")), _ignore)

    def traces(self) -> Traces:
        """As of now."""
        status = Path(f"/proc/{self.judge_pid}/status").read_text()
        return Traces(
            resident=_kib(status, "RssAnon"),
            shared=_kib(status, "RssShmem"),
            descriptors=len(list(Path(f"/proc/{self.judge_pid}/fd").iterdir())),
            processes=frozenset(marked_processes(self.root)),
            files=frozenset(map(str, (*self.temporary.iterdir(), *shared_files(self.root)))),
        )

    def settle(self, before: Traces, seconds: float = ORPHAN_SECONDS) -> Traces:
        """Wait until no process is left that was not there before, for so long at the most; what is there then."""
        deadline = time.monotonic() + seconds
        while True:
            traces = self.traces()
            if not traces.orphans_since(before) or time.monotonic() > deadline:
                return traces
            time.sleep(0.05)

    @contextmanager
    def _marked(self) -> Iterator[None]:
        with marked(self.root, self.temporary):
            yield


@contextmanager
def adopt_orphans() -> Iterator[None]:
    """Become the parent of every descendant whose own parent ends, for the length of the block (prctl(2))."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@contextmanager
def ward(root: Path, surface: Surface) -> Iterator[Ward]:
    """A ward in a folder, closed at the end of the block."""
    with adopt_orphans(), closing(Ward(root, surface)) as opened:
        yield opened


@contextmanager
def marked(root: Path, temporary: Path) -> Iterator[None]:
    """The environment from which processes of a ward are started."""
    ours = {MARK: str(root), "TMPDIR": str(temporary)}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def marked_processes(root: Path) -> Iterator[int]:
    """Pids of the living that are of this ward: by their ancestors, environment or mounts."""
    own, parents = os.getpid(), _parents()
    for pid in parents:
        if pid != own and (own in _ancestors(pid, parents) or _is_marked(Path("/proc", str(pid)), root)):
            yield pid


def shared_files(root: Path) -> Iterator[Path]:
    """What lies in /dev/shm of this ward: the folders of its candidates, and files that a poison names `hoard`."""
    for path in SHARED_MEMORY.iterdir():
        with suppress(OSError):
            if path.name == "hoard" or str(root) in str((path / "workspace").readlink()):
                yield path


def _parents() -> dict[int, int]:
    """Every living process's parent."""
    found = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit():
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    found[int(folder.name)] = int(parent)
    return found


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


def _is_marked(folder: Path, root: Path) -> bool:
    with suppress(OSError):
        if f"{MARK}={root}\0".encode() in (folder / "environ").read_bytes():
            return True
        return f" {root}/".encode() in (folder / "mountinfo").read_bytes()
    return False


def _kib(status: str, field: str) -> int:
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(field))


def _ignore(progress: Progress) -> None:
    """Nobody watches."""
