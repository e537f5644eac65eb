"""Sides are compiled before their turn: by real compilers, in the real sandbox, for a GPU that is not there."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from hillclimb.harness.channel.layout import CallSignature
from hillclimb.harness.duel.process import kernel_cache as kept
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launch_spec import LaunchSpec, ProcessLimits
from hillclimb.harness.duel.process.precompile import Precompiler
from hillclimb.harness.errors import CandidateFault, SandboxError
from hillclimb.harness.records import Reason, Side
from hillclimb.harness.sandbox.rungs.choose import Rung

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "scripts" / "experiments"))

import gpu_cases  # noqa: E402

PROBLEMS = {"main": CallSignature([("x", (64, 256), "bfloat16"), ("y", (64, 256), "bfloat16")])}
SOFTMAX = gpu_cases.TAIL.format(extra=gpu_cases.NO_TAIL) + gpu_cases.SOFTMAX
WITH_TAIL = SOFTMAX.replace('"EXTRA", "-1"', '"EXTRA", "5"')
SLOW = "import time\n" + SOFTMAX.replace("def run(x, y):\n", "def run(x, y):\n    time.sleep(60)\n")

NO_COMPILER = """
from triton.backends.nvidia.compiler import CUDABackend

def leave(*arguments):
    os._exit(9)

CUDABackend.make_ttir = CUDABackend.make_cubin = leave
"""
"""Whoever compiles anything leaves."""


@dataclass
class Yard:
    """Sides by their source, and what was started for them."""

    rung: Rung
    folder: Path
    seconds: float = 30
    started: list[CandidateProcess] = field(default_factory=list)
    seeds: list[Path | None] = field(default_factory=list)
    opened: list[Precompiler] = field(default_factory=list)

    def side(self, source: str, **knobs: str) -> Side:
        workspace = self.folder / f"side-{len(list(self.folder.iterdir()))}"
        workspace.mkdir()
        (workspace / "kernel.py").write_text(source)
        return Side(tree=str(workspace), knobs=knobs)

    def open(self, most: int = 2) -> Precompiler:
        self.opened.append(Precompiler(self._start, PROBLEMS, most))
        return self.opened[-1]

    def _start(self, side: Side, kernels: Path | None) -> CandidateProcess:
        dress = LaunchSpec(
            tensors="meta", architecture=90, preload=("torch", "triton"), kernel_folder=kernels
        )
        limits = ProcessLimits(self.seconds, 1, 4 << 30)
        self.started.append(CandidateProcess(self.rung, side, "kernel.py:run", dress, limits))
        self.seeds.append(kernels)
        return self.started[-1]

    def alive(self) -> list[int]:
        """Which of the processes started live on, by their number."""
        return [n for n, process in enumerate(self.started) if Path(f"/proc/{process.pid}").exists()]


@pytest.fixture
def yard(rung: Rung, tmp_path: Path) -> Iterator[Yard]:
    tmp_path.chmod(0o755)
    made = Yard(rung, tmp_path)
    yield made
    for ahead in made.opened:
        ahead.close()
    assert made.alive() == []


def binaries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.cubin"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.slow(4)
def test_kernels_are_compiled_into_a_folder_that_others_can_read(yard: Yard) -> None:
    ahead = yard.open()
    folder = ahead.kernel_folder(yard.side(WITH_TAIL))
    assert binaries(folder) == ["chain.cubin", "softmax.cubin"]
    assert all(data.startswith(b"\x7fELF") for name, data in files(folder).items() if name.endswith("cubin"))
    assert folder.stat().st_mode & 0o055 == 0o055
    assert folder.parent.stat().st_mode & 0o055 == 0o055
    assert yard.alive() == []


@pytest.mark.slow(4)
def test_a_side_is_compiled_once(yard: Yard) -> None:
    ahead, side = yard.open(), yard.side(SOFTMAX)
    ahead.begin(side)
    ahead.begin(side)
    assert ahead.kernel_folder(side) == ahead.kernel_folder(side)
    ahead.kernel_folder(yard.side(SOFTMAX))
    assert len(yard.started) == 2
    assert ahead.kernel_folder(side.model_copy(update={"knobs": {"EXTRA": "3"}})) != ahead.kernel_folder(side)
    assert len(yard.started) == 3


def test_preparing_does_not_wait(yard: Yard) -> None:
    started = time.perf_counter()
    yard.open().begin(yard.side(SLOW))
    assert time.perf_counter() - started < 30
    assert yard.alive() == [0]


def test_what_the_compiler_refuses_is_told_when_it_is_asked_for(yard: Yard) -> None:
    ahead, side = yard.open(), yard.side(SOFTMAX.replace("tl.max(v, 0)", "tl.nothing(v)"))
    ahead.begin(side)
    for _ in range(2):
        with pytest.raises(CandidateFault, match=r"(?s)problem main: .*has no attribute 'nothing'") as caught:
            ahead.kernel_folder(side)
        assert caught.value.reason is Reason.DOES_NOT_COMPILE
    assert len(yard.started) == 1


@pytest.mark.slow(5)
def test_a_crowd_is_found_while_nobody_waits(yard: Yard) -> None:
    bomb = "for _ in range(80):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\ntime.sleep(60)\n"
    ahead, side = yard.open(), yard.side(f"import os, time\n{bomb}{SOFTMAX}")
    ahead.begin(side)
    deadline = time.monotonic() + 20
    while yard.alive() and time.monotonic() < deadline:
        time.sleep(0.05)
        ahead.poll()
    with pytest.raises(CandidateFault, match="live beside it") as caught:
        ahead.kernel_folder(side)
    assert caught.value.reason is Reason.STARTED_PROCESS


ILL = {
    "raises at import": (Reason.DOES_NOT_LOAD, "raise ImportError('not today')\n", "not today"),
    "leaves": (Reason.EXITED, SOFTMAX + "os._exit(3)\n", "status 3"),
    "crashes": (Reason.CRASHED, SOFTMAX + "def run(x, y):\n    os.abort()\n", "SIGABRT"),
    "hangs at import": (Reason.HUNG, "while True: pass\n", "of importing"),
    "hangs while compiled": (Reason.HUNG, SLOW, "of compiling"),
    "answers for itself": (
        Reason.BROKE_PROTOCOL,
        "import sys\n" + SOFTMAX + "os.write(int(sys.argv[1]), b'{\"fine\": 1}')\n",
        "fine",
    ),
}


@pytest.mark.slow(4, only=["hangs while compiled", "hangs at import"])
@pytest.mark.parametrize("name", ILL)
def test_what_goes_wrong_is_named(yard: Yard, name: str) -> None:
    reason, source, says = ILL[name]
    yard.seconds = 1 if reason is Reason.HUNG else 30
    ahead, started = yard.open(), time.perf_counter()
    with pytest.raises(CandidateFault, match=says) as caught:
        ahead.kernel_folder(yard.side(source))
    assert caught.value.reason is reason
    assert time.perf_counter() - started < 25
    assert yard.alive() == []


def test_a_problem_that_only_a_run_can_show_is_no_fault(yard: Yard) -> None:
    source = SOFTMAX + "def run(x, y):\n    y.copy_(x.item() * x)\n"
    assert files(yard.open().kernel_folder(yard.side(source))) == {}


def test_a_fault_at_the_start_waits_to_be_asked_for(yard: Yard) -> None:
    def refuse(side: Side, kernels: Path | None) -> CandidateProcess:
        raise CandidateFault(Reason.POLICY, "kernel.py:1: says what it may not")

    ahead, side = Precompiler(refuse, PROBLEMS, 1), yard.side(SOFTMAX)
    yard.opened.append(ahead)
    ahead.begin(side)
    for _ in range(2):
        with pytest.raises(CandidateFault, match="says what it may not"):
            ahead.kernel_folder(side)


@pytest.mark.slow(2)
def test_nothing_that_the_parent_had_is_compiled_anew(yard: Yard) -> None:
    ahead, parent = yard.open(), yard.side(SOFTMAX)
    folder = ahead.kernel_folder(parent)
    child = yard.side(SOFTMAX + NO_COMPILER)
    ahead.begin(child, parent)
    assert files(ahead.kernel_folder(child)) == files(folder)
    assert yard.seeds == [None, folder]
    orphan = yard.side(SOFTMAX + NO_COMPILER)
    ahead.begin(orphan)
    with pytest.raises(CandidateFault, match="status 9"):
        ahead.kernel_folder(orphan)


@pytest.mark.slow(2)
def test_kernels_that_began_from_nothing_are_made_again_where_they_did_not(yard: Yard) -> None:
    ahead, parent, child = yard.open(), yard.side(SOFTMAX), yard.side(SOFTMAX + NO_COMPILER)
    folder = ahead.kernel_folder(parent)
    assert ahead.kernel_folder(parent, from_source=True) == folder, "the parent itself had no seed"
    ahead.begin(child, parent)
    seeded = ahead.kernel_folder(child)
    with pytest.raises(CandidateFault, match="status 9"):
        ahead.kernel_folder(child, from_source=True)
    assert yard.seeds == [None, folder, None]
    assert binaries(seeded) == ["softmax.cubin"]


def test_a_side_is_no_seed_of_its_own(yard: Yard) -> None:
    ahead, side = yard.open(), yard.side(SOFTMAX)
    ahead.begin(side, side)
    ahead.kernel_folder(side, from_source=True)
    assert yard.seeds == [None]


def test_what_the_parent_did_not_have_is_added(yard: Yard) -> None:
    ahead, parent = yard.open(), yard.side(SOFTMAX)
    before = files(ahead.kernel_folder(parent))
    child = yard.side(WITH_TAIL)
    ahead.begin(child, parent)
    folder = ahead.kernel_folder(child)
    assert binaries(folder) == ["chain.cubin", "softmax.cubin"]
    assert files(folder).items() > before.items()
    assert files(ahead.kernel_folder(parent)) == before, "a child writes nothing to its parent's folder"


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "under way"])
def test_a_parent_that_is_not_finished_is_not_waited_for(yard: Yard, known: bool) -> None:
    ahead, parent, child = yard.open(), yard.side(SLOW), yard.side(SOFTMAX)
    if known:
        ahead.begin(parent)
    ahead.begin(child, parent)
    assert binaries(ahead.kernel_folder(child)) == ["softmax.cubin"]
    assert set(yard.seeds) == {None}


def test_as_many_as_there_is_room_for_are_under_way(yard: Yard) -> None:
    ahead = yard.open(most=4)
    for count in range(1, 5):
        ahead.begin(yard.side(SLOW))
        assert yard.alive() == list(range(count))


def test_the_oldest_gives_way(yard: Yard) -> None:
    ahead, oldest = yard.open(most=2), yard.side(SOFTMAX)
    ahead.begin(oldest)
    for _ in range(3):
        ahead.begin(yard.side(SLOW))
        assert len(yard.alive()) <= 2
    assert yard.alive() == [2, 3]
    assert binaries(ahead.kernel_folder(oldest)) == ["softmax.cubin"], (
        "it is begun again when it is asked for"
    )


def test_those_that_are_finished_give_no_way(yard: Yard) -> None:
    ahead, side = yard.open(most=1), yard.side(SOFTMAX)
    folder = ahead.kernel_folder(side)
    for _ in range(3):
        ahead.begin(yard.side(SLOW))
    assert ahead.kernel_folder(side) == folder
    assert binaries(folder) == ["softmax.cubin"]
    assert len(yard.started) == 4


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_tending_takes_in_what_is_finished(yard: Yard) -> None:
    ahead, side = yard.open(), yard.side(SOFTMAX)
    ahead.begin(side)

    def tended() -> bool:
        ahead.poll()
        return yard.alive() == []

    wait_for(tended)
    assert binaries(ahead.kernel_folder(side)) == ["softmax.cubin"]


@pytest.mark.clock
def test_tending_waits_for_nobody(yard: Yard) -> None:
    """Not even for one that has been imported and is still compiling."""
    ahead, yard.seconds = yard.open(), 2
    ahead.begin(yard.side(SLOW))
    time.sleep(0.7)
    started = time.perf_counter()
    ahead.poll()
    assert time.perf_counter() - started < 0.5
    assert yard.alive() == [0]


@pytest.mark.slow(3)
def test_tending_ends_what_takes_too_long(yard: Yard) -> None:
    """Whether it hangs in its import or later; the reason waits to be asked for."""
    ahead, yard.seconds = yard.open(), 0.7
    hangs, slow = yard.side("while True: pass\n"), yard.side(SLOW)
    for side in (hangs, slow):
        ahead.begin(side)

    def tended() -> bool:
        ahead.poll()
        return yard.alive() == []

    wait_for(tended)
    for side in (hangs, slow):
        with pytest.raises(CandidateFault) as caught:
            ahead.kernel_folder(side)
        assert caught.value.reason is Reason.HUNG
    assert len(yard.started) == 4, "what was only announced gets a second chance, while it is waited for"


def test_tending_forgets_what_was_never_born(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's measurement does not end for it; when it is asked for, it begins anew."""
    ahead, side = yard.open(), yard.side(SOFTMAX)
    ahead.begin(side)

    def unborn() -> NoReturn:
        raise SandboxError("not born")

    monkeypatch.setattr(yard.started[0], "has_precompiled", lambda: False)
    monkeypatch.setattr(yard.started[0], "require_bounds", unborn)
    ahead.poll()
    assert yard.alive() == []
    assert binaries(ahead.kernel_folder(side)) == ["softmax.cubin"]
    assert len(yard.started) == 2


@pytest.mark.parametrize("name", ["raises at import", "leaves", "crashes", "answers for itself"])
def test_tending_takes_in_what_went_wrong(yard: Yard, name: str) -> None:
    reason, source, says = ILL[name]
    ahead, side = yard.open(), yard.side(source)
    ahead.begin(side)

    def tended() -> bool:
        ahead.poll()
        return yard.alive() == []

    wait_for(tended)
    with pytest.raises(CandidateFault, match=says) as caught:
        ahead.kernel_folder(side)
    assert caught.value.reason is reason


@pytest.mark.slow(2)
def test_an_answer_before_the_question_is_waited_for_like_any_other(yard: Yard) -> None:
    """The import may be over before the judge, on a busy machine, comes to ask for the compilation."""
    dress = LaunchSpec(tensors="meta", architecture=90, preload=("torch", "triton"))
    side = yard.side(SOFTMAX)
    with CandidateProcess(yard.rung, side, "kernel.py:run", dress, ProcessLimits(30, 1, 4 << 30)) as process:
        time.sleep(1)
        process.begin_precompile(PROBLEMS)
        assert [kernel["name"] for kernel in process.finish_precompile()["kernels"]] == ["softmax"]


def test_what_never_began_is_begun_when_it_is_asked_for(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, side = yard.open(), yard.side(SOFTMAX)

    def unborn(side: Side, kernels: Path | None) -> NoReturn:
        raise SandboxError("not born")

    with monkeypatch.context() as broken:
        broken.setattr(ahead, "_start", unborn)
        for ask in (ahead.begin, ahead.kernel_folder):
            with pytest.raises(SandboxError):
                ask(side)
    assert binaries(ahead.kernel_folder(side)) == ["softmax.cubin"]


def test_kernels_that_cannot_be_kept_are_made_again(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, side = yard.open(), yard.side(SOFTMAX)

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as broken:
        broken.setattr(kept, "copy_kernels", full)
        with pytest.raises(OSError, match="no space"):
            ahead.kernel_folder(side)
    assert yard.alive() == []
    assert binaries(ahead.kernel_folder(side)) == ["softmax.cubin"]


def test_closing_leaves_nothing(yard: Yard) -> None:
    ahead = yard.open()
    root = ahead.kernel_folder(yard.side(SOFTMAX)).parent
    ahead.begin(yard.side(SLOW))
    yard.opened.remove(ahead)
    ahead.close()
    assert (yard.alive(), root.exists()) == ([], False)


def test_what_gave_way_leaves_no_folder(yard: Yard) -> None:
    ahead = yard.open(most=1)
    root = ahead.kernel_folder(yard.side(SOFTMAX)).parent
    for _ in range(3):
        ahead.begin(yard.side(SLOW))
    assert sum(path.is_dir() for path in root.iterdir()) == 2


@pytest.mark.slow(3)
def test_the_sides_used_longest_ago_are_not_kept(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hillclimb.harness.duel.process.precompile.MAX_CACHED_SIDES", 2)
    ahead = yard.open()
    first, second, third = (yard.side(SOFTMAX) for _ in range(3))
    root = ahead.kernel_folder(first).parent
    ahead.kernel_folder(second)
    ahead.kernel_folder(first)
    ahead.kernel_folder(third)
    assert sum(path.is_dir() for path in root.iterdir()) == 2
    ahead.kernel_folder(first)
    assert len(yard.started) == 3, "it was used after the second"
    ahead.kernel_folder(second)
    assert len(yard.started) == 4


LINKS = """
cache = os.environ["TRITON_CACHE_DIR"]
os.makedirs(cache + "/KEY")
os.symlink("{secret}", cache + "/KEY/file")
os.symlink("{folder}", cache + "/folder")
os.symlink("/proc/self/environ", cache + "/KEY/environ")
os.symlink(".", cache + "/itself")
"""


def test_links_in_the_cache_lead_nowhere(yard: Yard, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "kernel.cubin").write_text("SECRET")
    ahead = yard.open()
    folder = ahead.kernel_folder(
        yard.side(SOFTMAX + LINKS.format(secret=secret / "kernel.cubin", folder=secret))
    )
    assert binaries(folder) == ["softmax.cubin"]
    assert not any(b"SECRET" in data or b"HOME=" in data for data in files(folder).values())
    assert not any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in folder.rglob("*"))


def test_a_cache_that_is_a_link_itself_holds_nothing(yard: Yard, tmp_path: Path) -> None:
    source = SOFTMAX + f'os.symlink("{tmp_path}", os.environ["TRITON_CACHE_DIR"])\ndef run(x, y): pass\n'
    assert files(yard.open().kernel_folder(yard.side(source))) == {}


def test_a_parents_kernels_are_the_childs_to_read_and_not_to_write(yard: Yard) -> None:
    ahead, parent = yard.open(), yard.side(SOFTMAX)
    folder = ahead.kernel_folder(parent)
    before = files(folder)
    spoil = f"""
import glob
for path in glob.glob("{folder}/*/*"):
    try:
        open(path, "w").close()
    except OSError:
        continue
    os._exit(4)
"""
    child = yard.side(SOFTMAX + spoil)
    ahead.begin(child, parent)
    assert files(ahead.kernel_folder(child)) == before
    assert files(folder) == before
    assert os.access(folder, os.R_OK)
