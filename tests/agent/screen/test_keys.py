"""Files for keys never become git objects, whatever the user's ignore rules say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hillclimb.agent.git.edits import why_not_mutable
from hillclimb.agent.git.version import read_folder
from tests.fakes.night import Night, git, make_repository

CANARY = "sk-canary-0b5e1f"


def objects(root: Path) -> bytes:
    """Every object of the repository."""
    listing = ["git", "-C", str(root), "cat-file", "--batch-all-objects", "--batch"]
    return subprocess.run(listing, capture_output=True, check=True).stdout


@pytest.mark.parametrize("name", [".env", "workspace/.env", "workspace/docs/.env.local", "benchmarks/.ENV"])
def test_a_climb_never_commits_them(tmp_path: Path, name: str) -> None:
    root = make_repository(tmp_path / "repository")
    (root / "cases/demo/toy" / name).write_text(f"OPENAI_API_KEY={CANARY}\n")
    night = Night(root, plan=("improve", "tune"))
    assert night.climb().wins == 2
    assert CANARY.encode() not in objects(root)
    assert (root / "cases/demo/toy" / name).exists()
    assert "notes.md" in git(root, "ls-tree", "-r", "--name-only", "hillclimb/demo/toy/night")


def test_a_tree_that_is_brought_leaves_them_behind(tmp_path: Path) -> None:
    for name in (".env", "docs/.env.production", ".env.example", "kernel.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(CANARY)
    assert set(read_folder(tmp_path)) == {".env.example", "kernel.py"}


@pytest.mark.parametrize("path", [".env", "docs/.env", "docs/.Env.local"])
def test_no_proposal_may_write_them(path: str) -> None:
    assert "a file for keys" in (why_not_mutable(path, ("**/*", "*")) or "")
    assert why_not_mutable("docs/.env.example", ("docs/**",)) is None
