"""The judge on a real GPU: honest kernels pass, gains are found, and what is wrong is named for what it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.errors import MachineError
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "experiments"))

import gpu_cases  # noqa: E402

RUN = "def run(x, y):\n"
SOFTMAX = gpu_cases.TAIL.format(extra=0) + gpu_cases.SOFTMAX


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    found = Lab(folder)
    yield found
    found.judge.close()


class Lab:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in (folder, *folder.parents):
            if path.stat().st_uid == folder.stat().st_uid and path != Path("/"):
                path.chmod(path.stat().st_mode | 0o055)
        self.case = gpu_cases.write_case(folder, "softmax", 0.0025)
        settings = self.case / "case.yaml"
        settings.write_text(settings.read_text().replace("imports: [os,", "imports: [os, os.*,"))
        self.judge = LocalJudge(self.case, folder / "judge.log")
        self.made = 0

    def tree(self, source: str) -> Side:
        self.made += 1
        tree = self.folder / f"tree-{self.made}"
        shutil.copytree(self.case / "workspace", tree)
        (tree / "kernel.py").write_text(source)
        return Side(tree=str(tree))

    def planted(self, steps: int) -> Side:
        return self.tree(gpu_cases.TAIL.format(extra=steps) + gpu_cases.SOFTMAX)


def _ignore(progress: Progress) -> None:
    """Nobody watches."""


def test_it_says_what_judges(lab: Lab) -> None:
    found = lab.judge.describe()
    print(found)
    assert found.device_id.startswith("GPU-")
    assert found.software["driver"]


def test_an_honest_kernel_passes_the_gate(lab: Lab) -> None:
    found = lab.judge.gate(lab.planted(0), _ignore)
    print(found)
    assert found.passed, found.detail
    assert 0 < found.worst <= 1


def test_equal_sides_are_equal(lab: Lab) -> None:
    side = lab.planted(0)
    found = lab.judge.compare(side, side, "noise", _ignore)
    print("noise:", found.speedup, "pair sd", found.pair_sd, "in", found.seconds, "s")
    assert abs(found.speedup.estimate - 1) < 0.005


def test_a_planted_gain_is_kept_and_its_reverse_is_slower(lab: Lab) -> None:
    slow, fast = lab.planted(1000), lab.planted(0)
    screening = lab.judge.screen(fast, slow, _ignore)
    print("screen:", screening.reason, screening.detail, screening.speedup, screening.seconds)
    assert screening.reason is None
    found = lab.judge.confirm(fast, slow, slow, 1e-4, _ignore)
    print("confirm:", found.reason, found.detail, found.speedup, found.e_value, found.seconds)
    assert found.reason is None, found.detail
    back = lab.judge.screen(slow, fast, _ignore)
    print("back:", back.reason, back.detail, back.seconds)
    assert back.reason == Reason.SLOWER


def test_an_identical_candidate_is_not_kept(lab: Lab) -> None:
    incumbent, candidate = lab.planted(0), lab.tree(SOFTMAX + "\n# the same\n")
    screening = lab.judge.screen(candidate, incumbent, _ignore)
    print("identical:", screening.reason, screening.speedup, screening.seconds)
    if screening.reason is None:
        assert lab.judge.confirm(candidate, incumbent, incumbent, 0.006, _ignore).reason is not None


WRONG = {
    "writes nothing": (Reason.OUTPUT_NOT_WRITTEN, RUN + "    pass\n"),
    "zeros": (Reason.WRONG_RESULT, RUN + "    y.zero_()\n"),
    "changes its input": (
        Reason.INPUTS_CHANGED,
        SOFTMAX.replace(
            "    tl.store(y",
            "    tl.store(x + row * columns + i, v.to(tl.bfloat16) + 1, mask=inside)\n    tl.store(y",
        ),
    ),
    "does not compile": (Reason.DOES_NOT_COMPILE, SOFTMAX.replace("tl.max(v, 0)", "tl.nothing(v)")),
    "raises": (Reason.RAISED, RUN + "    raise ValueError('no')\n"),
    "illegal address": (
        Reason.CRASHED,
        SOFTMAX.replace("tl.store(y + row * columns + i", "tl.store(y + row * columns * 100000 + i"),
    ),
    "keeps running in the background": (
        Reason.STARTED_PROCESS,
        "import os\nif os.fork() == 0:\n    while True: pass\n" + SOFTMAX,
    ),
    "leaves": (Reason.EXITED, "import os\n" + RUN + "    os._exit(0)\n"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(lab: Lab, name: str) -> None:
    reason, source = WRONG[name]
    try:
        found = lab.judge.gate(lab.tree(source), _ignore)
    except MachineError as error:
        pytest.fail(f"told as the machine's failure: {error}")
    print(name, "->", found.reason, found.detail[:300])
    assert found.reason == reason or (name == "illegal address" and found.reason == Reason.RAISED)
