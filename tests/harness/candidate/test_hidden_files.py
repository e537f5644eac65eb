"""Files that a process has hidden from itself: not opened again by any name, and nothing else is missing."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.fakes.cases import write_case, write_workspace

needs_landlock = pytest.mark.skipif(
    ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) < 1, reason="this kernel has no Landlock"
)


def tell(body: str, *arguments: str) -> str:
    """What a process prints that runs this; it hides the files named by its arguments first."""
    head = (
        "import sys\nfrom pathlib import Path\nfrom hillclimb.harness.candidate.wall.hidden_files import hide_files\n"
        "def can(path):\n    try:\n        return bool(open(path, 'rb').read(1))\n    except OSError as error:\n"
        "        return error.errno\n"
        "here = Path(sys.argv[1])\nhidden = hide_files([Path(name) for name in sys.argv[2:]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + body, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("open/a", "closed/b", "closed/deep/c", "beside", "secret"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to("closed/b")
    return tmp_path


@needs_landlock
def test_what_is_hidden_is_opened_by_no_name(folder: Path) -> None:
    body = (
        "(here / 'open' / 'later').write_text('x')\n"
        "names = 'open/a beside open/later closed/b closed/deep/c link open/../closed/b secret'.split()\n"
        "print(hidden, [can(here / name) for name in names], can('/proc/self/status'), can('/etc/passwd'))\n"
    )
    told = tell(body, str(folder), str(folder / "closed"), str(folder / "secret"))
    assert told == "True [True, True, True, 13, 13, 13, 13, 13] True True"


@needs_landlock
def test_hidden_by_a_link_it_is_hidden_by_its_own_name(folder: Path) -> None:
    told = tell(
        "print(can(here / 'closed/b'), can(here / 'closed/deep/c'))", str(folder), str(folder / "link")
    )
    assert told == "13 True"


@needs_landlock
def test_what_is_loaded_stays_loaded_and_descriptors_stay_open(folder: Path) -> None:
    body = (
        "import os, numpy\nkept = os.open(here / 'secret', os.O_RDONLY)\n"
        "libraries = Path(numpy.__path__[0]).parent / 'numpy.libs'\n"
        "hide_files([here / 'secret', libraries])\n"
        "a = numpy.ones((9, 9))\n"
        "print(os.read(kept, 1), (a @ a).sum(), {can(path) for path in libraries.iterdir()} or {13})\n"
    )
    assert tell(body, str(folder)) == "b'x' 729.0 {13}"


def test_nothing_to_hide_changes_nothing(folder: Path) -> None:
    assert tell("print(hidden, can(here / 'secret'))", str(folder)) == "False True"


@needs_landlock
def test_a_candidate_opens_no_finished_library(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    judge = CaseJudge(Case(write_case(tmp_path / "case")), choose_rung(trust_workspace=False), CpuDevice())
    source = (
        "import sys\nfrom os.path import isdir, join\nfrom os import listdir\nimport numpy as np\n\n"
        "PLACES = [join(p, n) for p in sys.path for n in ('numpy.libs', 'scipy.libs') if isdir(join(p, n))]\n\n\n"
        "def run(x, y):\n    for place in PLACES:\n        for name in listdir(place):\n"
        "            try:\n                open(join(place, name), 'rb')\n            except PermissionError:\n"
        "                continue\n            return\n    y[...] = 2 * x + 1\n"
    )
    try:
        side = Side(tree=str(write_workspace(tmp_path / "one" / "workspace", source)))
        report = judge.gate(side, lambda progress: None)
        assert report.passed, report.detail
    finally:
        judge.close()
