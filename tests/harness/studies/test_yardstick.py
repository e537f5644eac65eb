"""A yardstick compiled once: later processes find what torch.compile made, wherever their cache lies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.case.case import Case
from harness.studies.variants import CACHE, YARDSTICK, Staged, staged, timed_problems
from harness.studies.yardstick import compile_ahead
from tests.harness.studies.small_study import write_study

PLAIN = "import torch\n\n\ndef run(x, y):\n    torch.add(torch.mul(x, 2), 1, out=y)\n"

LATER = """
import json, sys
import torch  # a candidate's process has imported it before its workspace, and pickles by that order
from pathlib import Path
from torch._dynamo.utils import counters
from harness.candidate.runner import import_kernel
from harness.case.contract import load_contract

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


def sides(copy: Staged) -> tuple[Path, Path]:
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


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler on a CPU")
def test_what_was_compiled_apart_is_found_by_others(case: Case, tmp_path: Path) -> None:
    (case.folder / "yardstick.py").write_text(PLAIN)
    with staged(case, timed=timed_problems(case)) as copy:
        folder, workspace = sides(copy)
        assert compile_ahead(copy) == ""
        assert not any("autotune" in file.read_text() for file in workspace.glob("*.py")), (
            "it would be made ready alone"
        )
        assert used_later(folder, workspace, tmp_path) == [True, {"fxgraph_cache_hit": 1}]


def test_one_that_says_so_is_timed_as_it_is(case: Case, tmp_path: Path) -> None:
    (case.folder / "yardstick.py").write_text(PLAIN.replace("\n\n\n", "\n\nCOMPILED = False\n\n\n"))
    with staged(case, timed=timed_problems(case)) as copy:
        folder, workspace = sides(copy)
        assert compile_ahead(copy) == ""
        assert not (workspace / CACHE).exists()
        assert used_later(folder, workspace, tmp_path) == [True, {}]


def test_one_that_cannot_be_compiled_says_why_and_leaves_no_cache(case: Case) -> None:
    (case.folder / "yardstick.py").write_text("import torch_misspelt\n")
    with staged(case, timed=timed_problems(case)) as copy:
        assert "No module named 'torch_misspelt'" in compile_ahead(copy)
        assert not (sides(copy)[1] / CACHE).exists()
