"""From the command line to a case that `check` calls sound."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.agent.evaluate.evaluation import check
from hillclimb.harness.case.case import Case
from tests.agent.importers import sources


def hillclimb(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hillclimb", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=250)


def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


@pytest.mark.slow(15)
def test_a_numpy_function_is_sound(tmp_path: Path) -> None:
    root = repository(tmp_path)
    (root / "blend.py").write_text(sources.NUMPY)
    done = hillclimb("new-case", "--from", "blend.py:blend", "--family", "demo", "--json", cwd=root)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["case"] == "demo/blend" and answer["folder"] == str(root / "cases" / "demo" / "blend")
    assert isinstance(answer["told"], list)
    found = check(Path(answer["folder"]), lambda event: None, trust_workspace=False)
    assert found.gate.passed, found.gate.detail
    assert found.oracle is not None and not found.oracle.accepted


@pytest.mark.slow(6)
def test_what_is_not_carried_over_is_printed_a_line_each(tmp_path: Path) -> None:
    root = repository(tmp_path)
    (root / "gate.py").write_text(sources.TORCH)
    done = hillclimb("new-case", "--from", "gate.py:Gate", "--device", "cpu", cwd=root)
    assert done.returncode == 0, done.stderr
    folder, following, *lines = done.stdout.splitlines()
    assert Case(Path(folder)).name == "torch/gate"
    assert following == "next: read what follows, then 'hillclimb check torch/gate'"
    assert any(line.startswith("  mode: ") for line in lines)
    assert any(line.startswith("  policy.library_calls: it is true") for line in lines)


def test_an_unknown_format_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("")
    done = hillclimb("new-case", "--from", "a.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "no known format; what can be imported: a GPU MODE task" in done.stderr
    assert not (tmp_path / "cases").exists()
