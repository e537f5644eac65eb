"""Poisoned kernels before the real judge: each is called what it is, and nothing of it stays.

One of each kind is judged here; `HILLCLIMB_POISON=all` judges every one, which takes some minutes. The whole night,
through the controller, is scripts/experiments/poison_night.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Reason
from tests.poison.device import CUDA_CODE
from tests.poison.hundred import poisons, representatives
from tests.poison.poison import Poison
from tests.poison.ward import Ward, adopt_orphans, marked_processes, ward, write_ward_case

KEPT_BYTES = 96 << 20
"""What a judge's own memory may have grown by in the end: 2 MiB were seen after 130 candidates on a quiet machine, 57
on a busy one, whose segments are others; one arena that is not given back is up to 256."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    """A judge that takes all the poison; in the end it has to be as healthy as before."""
    root = tmp_path_factory.mktemp("ward")
    for folder in (root, root.parent, root.parent.parent):
        folder.chmod(0o755)
    with ward(root, "cpu") as opened:
        assert opened.gate_honest().passed
        before = opened.traces()
        yield opened
        found = opened.gate_honest()
        assert found.passed, f"after the poison an honest kernel is {found.reason}: {found.detail}"
        after = opened.settle(before)
        assert not after.orphans_since(before)
        assert after.files <= before.files, "files left behind"
        assert after.descriptors <= before.descriptors, "descriptors left open"
        assert after.shared <= before.shared, "shared memory left mapped"
        assert after.resident <= before.resident + KEPT_BYTES, "memory kept"


OFTEN = (
    "50 GB file, in many pieces (later)",
    "huge allocation, shared pages, given back before the call ends (first)",
)
"""Were called by a wrong name once."""


def _judged() -> list[Poison]:
    if os.environ.get("HILLCLIMB_POISON") == "all":
        return list(poisons("cpu"))
    return [*representatives("cpu"), *(poison for poison in poisons("cpu") if poison.name in OFTEN)]


@pytest.mark.slow(
    6,
    only=[
        "wrong protocol, answers for itself, then sleeps (later)",
        "unkillable sleep, with every signal blocked (later)",
        "host segfault, reads address 0 (later)",
        "huge allocation, 64 GiB at once (later)",
        "illegal instruction, executes one (later)",
        "illegal address, touches a mapping behind its file's end (later)",
        "endless compile, a function of 4000 lines (later)",
        "50 GB file, in many pieces (later)",
        # as in tests/harness/duel/test_hostile.py
        "50 GB file, written (later)",
        "exit 0, at once (later)",
        "fork bomb, os.fork (later)",
        "recursion, without end (later)",
        "shared memory exhaustion, memory files (later)",
        "stdout flood, printed (later)",
        # each of a kind that others here are of, too
        "alarm, that nobody handles (later)",
        "assertion, Python's (later)",
        "deadlock, a lock taken twice (later)",
        "huge allocation, shared pages, given back before the call ends (first)",
        "import loop, in a circle (import)",
        "inode exhaustion, empty files without end (later)",
        "not finite, NaN (later)",
        "stack overflow, a pattern of a million brackets (later)",
        "stops itself, SIGSTOP (later)",
        "wrong exception, of a megabyte (later)",
    ],
)
@pytest.mark.parametrize("poison", _judged(), ids=lambda poison: poison.name)
def test_it_is_called_what_it_is_and_nothing_of_it_stays(lab: Ward, poison: Poison) -> None:
    before = lab.traces()
    found = lab.take(poison)
    assert found.reason in poison.expected, f"{found.reason}: {found.detail}"
    assert found.detail
    after = lab.settle(before)
    assert not after.orphans_since(before)
    assert after.files <= before.files
    assert after.descriptors <= before.descriptors


@pytest.mark.slow(3, only=["host segfault"])
@pytest.mark.parametrize("when", ["host segfault", "exit 0"])
def test_what_waits_for_the_clock_is_found_by_the_duel(lab: Ward, when: str) -> None:
    """The gate passes it, and the incumbent is not blamed."""
    poison = next(p for p in poisons("cpu") if p.kind == when and p.is_taken_while_timed)
    found = lab.take(poison)
    assert found.reason in poison.expected, f"{found.reason}: {found.detail}"
    assert getattr(found, "gate").passed  # noqa: B009 - only a screening has one


def test_there_are_enough_of_them() -> None:
    for surface in ("cpu", "gpu"):
        every = poisons(surface)
        assert len(every) >= 100
        assert len({poison.kind for poison in every}) >= 12
        assert len({poison.name for poison in every}) == len(every)
        assert len({(poison.source(), str(dict(poison.files))) for poison in every}) == len(every)
        assert all(poison.expected for poison in every)


def test_a_process_left_behind_would_be_seen(tmp_path: Path) -> None:
    """Its parent is gone and nothing of it names the ward, yet it is found."""
    script = "import subprocess; subprocess.Popen(['sleep', '60'], env={}, start_new_session=True)"
    with adopt_orphans():
        before = set(marked_processes(tmp_path))
        subprocess.run([sys.executable, "-c", script], check=True)
        left = set(marked_processes(tmp_path)) - before
        assert len(left) == 1
        for pid in left:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def test_no_poison_for_a_gpu_ends_at_the_reading_of_its_source(tmp_path: Path) -> None:
    """Nothing here can run them, but each gets as far as being run."""
    policy = Case(write_ward_case(tmp_path, "gpu")).settings.policy
    refused = {}
    for number, poison in enumerate(poisons("gpu")):
        if poison.kind == "giant source":
            continue
        folder = _workspace(tmp_path / str(number), poison)
        try:
            check_policy(folder, policy)
        except CandidateFault as fault:
            refused[poison.name] = str(fault)
    assert not refused


@pytest.mark.slow(6)
def test_the_cuda_code_of_every_poison_compiles(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings with NVRTC")
    sources = {poison.files["venom.cu"] for poison in poisons("gpu") if "venom.cu" in poison.files}
    assert len(sources) >= 15
    for number, source in enumerate(sorted(sources)):
        (tmp_path / f"venom-{number}.cu").write_text(source)
    script = (
        f"import sys; sys.path.insert(0, {str(CUDA_CODE.parent)!r}); from pathlib import Path\n"
        f"from cuda_code import compile_cuda\n"
        f"for path in sorted(Path({str(tmp_path)!r}).glob('*.cu')): print(len(compile_cuda(path)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.split()) == len(sources)


def _workspace(folder: Path, poison: Poison) -> Path:
    folder.mkdir()
    for name, text in {"kernel.py": poison.source(), **poison.files}.items():
        (folder / name).write_text(text)
    return folder


def test_reasons_are_of_the_closed_list() -> None:
    named = {
        reason for surface in ("cpu", "gpu") for poison in poisons(surface) for reason in poison.expected
    }
    assert named <= set(Reason)
    assert {Reason.CRASHED, Reason.HUNG, Reason.EXITED, Reason.LEAKED, Reason.STARTED_PROCESS} <= named
