"""The Python examples of docs/guides/use-from-python.md run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.climb.climbed import git
from tests.fakes.cases import write_case

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "use-from-python.md"

KERNEL = """
import os
import numpy as np
import yaml

with open(os.path.join(os.path.dirname(__file__), "knobs.yaml")) as file:
    default = yaml.safe_load(file.read())["RS_FASTMATH"]["default"]
TIMES = 1 if int(os.environ.get("RS_FASTMATH") or default) else 64

def run(x, y):
    for _ in range(TIMES):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
"""
"""In the place of the stamped kernel, which numba compiles anew in every process."""

KNOBS = """
RS_FASTMATH: {type: bool, default: false}
RS_BLOCK: {type: log-int, low: 64, high: 8192, default: 8192}
"""


def make_stamped_repository(root: Path) -> None:
    """A repository with a case `mine/rows` that has the knobs of a stamped one."""
    (root / "cases/mine").mkdir(parents=True)
    case = write_case(root, KERNEL).rename(root / "cases/mine/rows")
    (case / "workspace/knobs.yaml").write_text(KNOBS)
    (root / ".gitignore").write_text("/runs/\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "A case")


@pytest.mark.clock
@pytest.mark.slow(20)
def test_the_examples_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stamped_repository(tmp_path)
    monkeypatch.chdir(tmp_path)
    for example in [part.split("```")[0] for part in GUIDE.read_text().split("```python\n")[1:]]:
        exec(compile(example, str(GUIDE), "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("True None "), said
    assert [line.split()[:2] for line in said[1:3]] == [["1", "True"], ["2", "False"]]
    assert said[3].startswith("1 set {'RS_FASTMATH': True} "), said
    assert len(said) == 5, said
