"""What is misspelt in a case's files is told with file, key, value and the nearest name, before anything is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case, find_case
from hillclimb.harness.errors import CaseError, UsageError
from tests.fakes.cases import write_case

KERNEL = """
import os
import yaml
with open("knobs.yaml") as file:
    KNOBS = yaml.safe_load(file)
def knob(name):
    return os.environ.get(name) or KNOBS[name]["default"]
TILE = knob("MM_TILE")
def run(x, y):
    y[:] = x
"""
KNOBS = "MM_TILE: {type: choice, choices: [1, 2], default: 1}\n"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    folder = write_case(tmp_path, KERNEL)
    (folder / "workspace" / "knobs.yaml").write_text(KNOBS)
    Case(folder)
    return folder


def change(case: Path, name: str, old: str, new: str) -> None:
    path = case / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def said(case: Path) -> str:
    with pytest.raises(CaseError) as caught:
        Case(case)
    return str(caught.value).removeprefix(f"{case.resolve()}/")


def add_setting(case: Path, line: str) -> None:
    """In place of the key's own line, if it has one."""
    path, key = case / "case.yaml", line.partition(":")[0]
    others = [other for other in path.read_text().splitlines() if other.partition(":")[0] != key]
    path.write_text("\n".join([*others, line, ""]))


def test_an_entry_without_its_file(case: Path) -> None:
    add_setting(case, 'entry: "kernle.py:run"')
    assert said(case) == (
        "case.yaml: entry: value 'kernle.py:run': there is no such file; did you mean 'kernel.py'?"
    )


def test_an_entry_without_its_function(case: Path) -> None:
    add_setting(case, 'entry: "kernel.py:rnu"')
    assert said(case) == (
        "case.yaml: entry: value 'kernel.py:rnu': kernel.py defines no 'rnu'; did you mean 'run'?"
    )


@pytest.mark.parametrize(
    "source",
    [
        "from other import run",
        "from other import *",
        "import other as run",
        "run = lambda x, y: None",
        "if True:\n    def run(x, y): pass",
        "globals()['run'] = print",
        "def broken(:",
    ],
)
def test_an_entry_that_may_be_there_is_left_to_the_gate(case: Path, source: str) -> None:
    (case / "workspace" / "knobs.yaml").unlink()
    (case / "workspace" / "kernel.py").write_text(source)
    Case(case)


def test_a_knob_that_was_renamed_in_yaml_only(case: Path) -> None:
    change(case, "workspace/knobs.yaml", "MM_TILE", "MM_TILES")
    assert said(case) == (
        "workspace/knobs.yaml: MM_TILES: no file of workspace/ reads it, and kernel.py reads 'MM_TILE', which is no "
        "knob; did you mean 'MM_TILE'? give file and source the same name"
    )


def test_knobs_whose_names_are_made_while_the_program_runs_are_fine(case: Path) -> None:
    change(case, "workspace/kernel.py", 'knob("MM_TILE")', 'knob("MM_" + "TILE")')
    Case(case)


def test_a_file_of_knobs_that_the_kernel_reads_and_nobody_wrote(case: Path) -> None:
    (case / "workspace" / "knobs.yaml").unlink()
    assert said(case).startswith("workspace/knobs.yaml: does not exist, and kernel.py reads it; create it")


def test_a_key_of_a_knob(case: Path) -> None:
    change(case, "workspace/knobs.yaml", "default:", "defualt:")
    assert said(case) == (
        "workspace/knobs.yaml: MM_TILE.defualt: unknown key (value 1); did you mean 'default'?"
    )


@pytest.mark.parametrize(
    ("line", "key", "meant"),
    [
        ("bugets: {seconds: 3}", "bugets", "budgets"),
        ("gate: {seds: 3}", "gate.seds", "seeds"),
        ("llm: {prices: {promt: 1, completion: 2}}", "llm.prices.promt", "prompt"),
        ("guardrails: [{siute: main}]", "guardrails.0.siute", "suite"),
        ("summry: x", "summry", "summary"),
    ],
)
def test_a_key_of_the_settings(case: Path, line: str, key: str, meant: str) -> None:
    if key == "summry":
        text = (case / "case.yaml").read_text().splitlines()
        (case / "case.yaml").write_text("\n".join(part for part in text if not part.startswith("summary")))
    add_setting(case, line)
    assert said(case).startswith(f"case.yaml: {key}: unknown key (value ")
    assert said(case).endswith(f"did you mean {meant!r}?")


def test_a_key_of_a_suite(case: Path) -> None:
    change(case, "benchmarks/main.yaml", "problems:", "problms:")
    assert "benchmarks/main.yaml: problms: unknown key" in said(case)
    assert said(case).endswith("did you mean 'problems'?")


def test_a_suite_without_its_file(case: Path) -> None:
    add_setting(case, "objective: {suite: mian}")
    assert said(case).startswith("case.yaml: objective.suite: value 'mian': ")
    assert said(case).endswith("benchmarks/mian.yaml does not exist; did you mean 'main'?")


def test_of_many_cases_the_three_nearest_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("softmax", "softmax_wide", "matmul", "rmsnorm", "copy", "rope", "gemv", "conv"):
        (tmp_path / "cases" / "demo" / name).mkdir(parents=True)
        (tmp_path / "cases" / "demo" / name / "case.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        find_case("demo/sotfmax")
    assert str(caught.value).endswith(": demo/softmax, demo/softmax_wide, demo/matmul (3 of 8)")
