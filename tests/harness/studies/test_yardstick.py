"""A yardstick compiled once: later processes find what torch.compile made, wherever their cache lies."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.records import Progress
from hillclimb.harness.studies import yardstick
from hillclimb.harness.studies.variants import CACHE, YARDSTICK, StagedCase, stage_case, timed_problems
from hillclimb.harness.studies.yardstick import compile_yardstick, with_yardstick_compiled
from tests.harness.studies.small_study import write_study

SILENT = lambda progress: None  # noqa: E731

PLAIN = "import torch\n\n\ndef run(x, y):\n    torch.add(torch.mul(x, 2), 1, out=y)\n"

LATER = """
import json, sys
import torch  # a candidate's process has imported it before its workspace, and pickles by that order
from pathlib import Path
from torch._dynamo.utils import counters
from hillclimb.harness.candidate.runner import import_kernel
from hillclimb.harness.case.checked import load_contract

run = import_kernel(sys.argv[2], "kernel.py:run")
contract = load_contract(Path(sys.argv[1], "contract.py"), "cpu")
problem = contract.problems["timed"]
x = contract.inputs(problem, "normal", torch.Generator().manual_seed(1))["x"]
y = torch.empty_like(x)
run(x, y)
print(json.dumps([bool(torch.allclose(y, 2 * x + 1)), counters["inductor"]]))
"""


@pytest.fixture
def case(tmp_path: Path) -> Case:
    found = Case(write_study(tmp_path) / "small" / "affine")
    (found.folder / "benchmarks" / "rest.yaml").unlink()
    return found


def sides(copy: StagedCase) -> tuple[Path, Path]:
    return copy.folder, Path(copy.sides[YARDSTICK].tree)


def used_later(folder: Path, workspace: Path, temporary: Path) -> Any:
    """By another process: whether its result is right, and what torch.compile had to do for it."""
    done = subprocess.run(
        [sys.executable, "-c", LATER, str(folder), str(workspace)],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow(50)
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler on a CPU")
def test_what_was_compiled_apart_is_found_by_others(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yardstick, "MAX_COMPILE_TRIES", 1)
    (case.folder / "yardstick.py").write_text(PLAIN)
    with stage_case(case, timed=timed_problems(case)) as copy:
        folder, workspace = sides(copy)
        seen: list[Progress] = []
        told = compile_yardstick(copy, seen.append)
        assert re.fullmatch(
            r"the fastest of 1 that torch\.compile made: [\d.]+ us for one call of each problem", told
        )
        assert [(at.stage, at.done, at.of) for at in seen] == [("yardstick", 0, 1)]
        assert not any("autotune" in file.read_text() for file in workspace.glob("*.py")), (
            "it would be made ready alone"
        )
        assert used_later(folder, workspace, tmp_path) == [True, {"fxgraph_cache_hit": 1}]


@pytest.mark.slow(12)
def test_one_that_says_so_is_timed_as_it_is(case: Case, tmp_path: Path) -> None:
    (case.folder / "yardstick.py").write_text(PLAIN.replace("\n\n\n", "\n\nCOMPILED = False\n\n\n"))
    with stage_case(case, timed=timed_problems(case)) as copy:
        folder, workspace = sides(copy)
        assert compile_yardstick(copy, SILENT) == ""
        assert not (workspace / CACHE).exists()
        assert used_later(folder, workspace, tmp_path) == [True, {}]


@pytest.mark.slow(8)
def test_one_that_cannot_be_compiled_says_why_and_leaves_no_cache(case: Case) -> None:
    (case.folder / "yardstick.py").write_text("import torch_misspelt\n")
    with stage_case(case, timed=timed_problems(case)) as copy:
        with pytest.raises(HillclimbError, match="No module named 'torch_misspelt'"):
            compile_yardstick(copy, SILENT)
        assert not (sides(copy)[1] / CACHE).exists()
        without = with_yardstick_compiled(copy, SILENT)
    assert YARDSTICK not in without.sides
    assert "No module named 'torch_misspelt'" in without.yardstick_error


def test_the_fastest_of_what_was_compiled_is_kept(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with tried(case, monkeypatch, [2e-4, 1e-4, 3e-4]) as (found, kept):
        assert kept == b"0.0001"
    assert found.yardstick_note == (
        "the fastest of 3 that torch.compile made: 200.0, 100.0, 300.0 us for one call of each problem"
    )


def test_a_try_that_fails_takes_nothing_from_those_before(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tried(case, monkeypatch, [2e-4]) as (found, kept):
        assert kept == b"0.0002"
    assert YARDSTICK in found.sides
    assert found.yardstick_note.startswith("the fastest of 1 that")


@contextmanager
def tried(
    case: Case, monkeypatch: pytest.MonkeyPatch, times: list[float]
) -> Iterator[tuple[StagedCase, bytes]]:
    """The staged case with a yardstick compiled in these times, further tries failing; what it has in its cache."""
    (case.folder / "yardstick.py").write_text(PLAIN)
    done: list[float] = []

    def made(copy: StagedCase, workspace: Path, folder: Path, most_seconds: float) -> float:
        assert not (workspace / CACHE).exists(), "torch.compile would find there what an earlier try made"
        assert 0 < most_seconds <= 1800
        if len(done) == len(times):
            raise HillclimbError("compiling it took over 1800 s")
        done.append(times[len(done)])
        (folder / "inductor").mkdir()
        (folder / "inductor" / "graph").write_text(str(done[-1]))
        return done[-1]

    monkeypatch.setattr(yardstick, "_compile", made)
    with stage_case(case, timed=timed_problems(case)) as copy:
        found = with_yardstick_compiled(copy, SILENT)
        with tarfile.open(sides(copy)[1] / CACHE) as kept:
            (graph,) = [kept.extractfile(m) for m in kept.getmembers() if m.name.endswith("graph")]
            assert graph is not None
            yield found, graph.read()
