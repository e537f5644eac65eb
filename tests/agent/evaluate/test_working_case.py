"""What is judged outside a run is what a climb would take: `check`, `evaluate` and `profile` read the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.agent.evaluate.evaluation import check, read_version
from hillclimb.agent.evaluate.working_case import place_case, read_working_files, workspace_of
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.git.version import read_folder, read_tree
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from tests.fakes.night import git, make_repository
from tests.fakes.toy import write_toy

WORKSPACE = "cases/demo/toy/workspace"


def test_outside_a_repository_the_files_lie_as_they_are(tmp_path: Path) -> None:
    case = Case(write_toy(tmp_path))
    assert read_working_files(case) == read_folder(case.folder)


def test_ignored_files_and_local_changes_that_git_skips_are_not_judged(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    case = Case(root / "cases/demo/toy")
    committed = read_working_files(case)
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("*.dat\n")
    (case.workspace / "table.dat").write_text("1\n")
    git(root, "update-index", "--skip-worktree", f"{WORKSPACE}/kernel.py")
    (case.workspace / "kernel.py").write_text("QUALITY = 9.0\n")
    assert read_working_files(case) == committed
    placed = place_case(committed, case.name, tmp_path / "placed")
    assert (placed.name, placed.settings) == (case.name, case.settings)
    assert (placed.workspace / "docs/notes.md").exists()


@pytest.mark.parametrize("named", ["cases/demo/toy", WORKSPACE])
def test_the_cases_own_folder_is_read_by_gits_rules_and_another_as_it_is(named: str, tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    git(root, "config", "core.autocrlf", "true")
    case = Case(root / "cases/demo/toy")
    (case.workspace / "kernel.py").write_bytes(b"QUALITY = 2.0\r\n")
    repository = Repository.open(root)
    tree = repository.resolve(f"HEAD:{WORKSPACE}")
    assert tree
    changed = read_version(case, str(root / named))
    assert changed["kernel.py"].content == b"QUALITY = 2.0\n"  # as git has it
    committed = read_tree(repository, tree, WORKSPACE)
    assert {path for path in changed if changed[path] != committed[path]} == {"kernel.py"}
    (tmp_path / "other").mkdir()
    (tmp_path / "other/kernel.py").write_bytes(b"QUALITY = 3.0\n")
    assert read_version(case, str(tmp_path / "other"))["kernel.py"].content == b"QUALITY = 3.0\n"


def test_check_refuses_what_a_climb_refuses(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    (root / WORKSPACE / "shapes.py").write_text("TILE = 8\n")
    (root / ".gitignore").write_text("/runs/\nshapes.py\n")
    (root / WORKSPACE / "kernel.py").write_text("from shapes import TILE\nQUALITY = 1.0\n")
    with pytest.raises(UsageError, match=r"shapes\.py: git ignores this file"):
        check(root / "cases/demo/toy", lambda progress: None, trust_workspace=False)


def test_of_a_case_the_workspace_is_a_part(tmp_path: Path) -> None:
    case = Case(write_toy(tmp_path))
    assert workspace_of(read_folder(case.folder)) == read_folder(case.workspace)
