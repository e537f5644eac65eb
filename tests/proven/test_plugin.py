"""The record of proven tests, tried on a small repository of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proven.closure import ROOT, import_closure
from tests.proven.plugin import SAMPLE, SEED, read_record, without_group

CONFTEST = """
from tests.proven.plugin import pytest_addoption, pytest_configure, pytest_collection_modifyitems
"""

TESTS = """
import pytest
from tests import helper

@pytest.mark.proven(lambda params: [f"data/{params['name']}"])
@pytest.mark.parametrize("name", ["a", "b", "c", "d", "e"])
def test_each(name):
    from pathlib import Path
    assert helper.ANSWER == 42
    assert (Path(__file__).parents[1] / "data" / name).read_text() != "bad"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    shutil.copytree(
        ROOT / "tests" / "proven",
        root / "tests" / "proven",
        ignore=shutil.ignore_patterns("test_*", "*.json"),
    )
    (root / "tests" / "__init__.py").write_text("")
    (root / "tests" / "conftest.py").write_text(CONFTEST)
    (root / "tests" / "helper.py").write_text("ANSWER = 42\n")
    (root / "tests" / "test_it.py").write_text(TESTS)
    (root / "requirements").mkdir()
    (root / "requirements" / "dev.txt").write_text("torch==1\n")
    (root / "data").mkdir()
    for name in "abcde":
        (root / "data" / name).write_text("good")
    return root


def run(root: Path, *options: str, status: int = 0) -> list[str]:
    """Run the tests; the parameters of those that were not skipped, in order."""
    environment = {
        k: v for k, v in os.environ.items() if k not in (SEED, "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-v",
        "-rs",
        "tests/test_it.py",
    ]
    done = subprocess.run([*command, *options], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    lines = [
        line for line in done.stdout.splitlines() if "::test_each[" in line and not line.startswith("FAILED")
    ]
    skipped = [line for line in lines if "SKIPPED" in line]
    assert not skipped or "scripts/test --all runs it" in done.stdout
    return [line.split("[")[1][0] for line in lines if line not in skipped]


def test_what_is_proven_is_skipped_but_for_a_sample(repository: Path) -> None:
    assert run(repository) == list("abcde"), "nothing is proven without a record"
    assert run(repository, "--all") == list("abcde")
    samples = [tuple(run(repository)) for _ in range(8)]
    assert {len(sample) for sample in samples} == {SAMPLE}
    assert len(set(samples)) > 1, "the sample is drawn anew each time"


@pytest.mark.parametrize(
    "changed", ["tests/helper.py", "tests/test_it.py", "requirements/dev.txt", "tests/conftest.py"]
)
def test_what_all_depend_on_runs_all_of_them(repository: Path, changed: str) -> None:
    run(repository, "--all")
    with (repository / changed).open("a") as file:
        file.write("\n# changed\n")
    assert run(repository) == list("abcde")


def test_what_one_depends_on_runs_that_one(repository: Path) -> None:
    run(repository, "--all")
    (repository / "data" / "c").write_text("better")
    assert "c" in run(repository)


def test_a_failure_is_never_recorded_and_forgets_what_was(repository: Path) -> None:
    run(repository, "--all")
    before = read_record(repository / "tests/proven/record.json")
    (repository / "data" / "b").write_text("bad")
    run(repository, "--all", status=1)
    after = read_record(repository / "tests/proven/record.json")
    assert set(before) - set(after) == {"tests/test_it.py::test_each[b]"}
    (repository / "data" / "b").write_text("good")
    assert "b" in run(repository)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"tests/test_it.py::test_each[a]": 1}', "\ud83d"])
def test_a_damaged_record_costs_time_only(repository: Path, content: str) -> None:
    run(repository, "--all")
    (repository / "tests/proven/record.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    assert run(repository) == list("abcde")


def test_a_path_that_is_not_there_is_an_error(repository: Path) -> None:
    (repository / "data" / "c").unlink()
    environment = {k: v for k, v in os.environ.items() if k != SEED}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "tests/test_it.py"]
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "a proven test names it" in done.stdout + done.stderr


def test_the_closure_holds_what_programs_in_texts_import() -> None:
    names = {
        path.relative_to(ROOT).as_posix() for path in import_closure([ROOT / "tests/cases/test_studies.py"])
    }
    assert "tests/cases/workspace.py" in names
    assert "hillclimb/harness/candidate/runner.py" in names, "started by `python -m`"
    assert "hillclimb/harness/candidate/lane_counter.py" in names, "imported inside a function"
    assert not any(name.startswith("hillclimb/agent/") for name in names)


def test_the_groups_name_is_no_part_of_a_tests() -> None:
    assert without_group("tests/a.py::test[x@y]@test_a") == "tests/a.py::test[x@y]"
    assert without_group("tests/a.py::test[x@y]") == "tests/a.py::test[x@y]"


def test_the_committed_record_is_sound() -> None:
    record = read_record()
    assert (
        json.dumps(record, indent=0, sort_keys=True) + "\n" == (ROOT / "tests/proven/record.json").read_text()
    )
