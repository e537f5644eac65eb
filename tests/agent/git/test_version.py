"""A version of a workspace, read from folders and commits, and what one may change against another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hillclimb.agent.git import version as agent_version
from hillclimb.agent.git.repository import EXECUTABLE, REGULAR, SYMLINK, Repository
from hillclimb.agent.git.version import File, Version, read_folder, read_tree, why_not_allowed, write_version
from hillclimb.harness.errors import UsageError
from tests.agent.climb.climbed import git, make_repository

MUTABLE = ("*.py", "docs/**")
KNOBS = "TILE: {type: int, low: 1, high: 9, default: 3}  # tile\n"


def version(**files: str | File) -> Version:
    """Files by name, `__` standing for a dot."""
    return {
        name.replace("__", "."): file if isinstance(file, File) else File(REGULAR, file.encode())
        for name, file in files.items()
    }


OLD = version(kernel__py="old", notes="n", knobs__yaml=KNOBS)


@pytest.mark.parametrize(
    "new",
    [
        version(kernel__py="new", notes="n", knobs__yaml=KNOBS),
        version(kernel__py="old", more__py="m", notes="n", knobs__yaml=KNOBS),
        version(notes="n", knobs__yaml=KNOBS),
        version(kernel__py="new", notes="n", knobs__yaml=KNOBS.replace("3", "4")),
    ],
)
def test_what_the_globs_allow_may_change_and_so_may_the_defaults(new: Version) -> None:
    assert why_not_allowed(new, OLD, MUTABLE) is None


@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        (version(kernel__py="old", notes="other", knobs__yaml=KNOBS), "'notes' matches none"),
        (version(kernel__py="old", knobs__yaml=KNOBS), "'notes' matches none"),
        (version(kernel__py="old", notes="n"), "'knobs.yaml' matches none"),
        (
            version(kernel__py="old", notes="n", knobs__yaml=KNOBS.replace("9", "8")),
            "'knobs.yaml' matches none",
        ),
        (version(kernel__py="old", notes="n", knobs__yaml="TILE: ["), "'knobs.yaml' matches none"),
        (
            version(kernel__py=File(EXECUTABLE, b"old"), notes="n", knobs__yaml=KNOBS),
            "becomes an executable",
        ),
        (
            version(kernel__py=File(SYMLINK, b"/etc/passwd"), notes="n", knobs__yaml=KNOBS),
            "becomes a symbolic link",
        ),
    ],
)
def test_nothing_else_may(new: Version, complaint: str) -> None:
    assert complaint in (why_not_allowed(new, OLD, MUTABLE) or "")


def test_a_folder_and_the_commit_of_it_are_the_same_version(tmp_path: Path) -> None:
    workspace = make_repository(tmp_path) / "workspace"
    (workspace / "tool").write_text("#!/bin/sh\n")
    (workspace / "tool").chmod(0o755)
    (workspace / "link").symlink_to("kernel.py")
    (workspace / "__pycache__").mkdir()
    (workspace / "__pycache__" / "x.pyc").touch()
    git(tmp_path, "add", "--force", "--", "cases")
    git(tmp_path, "commit", "-q", "-m", "more")
    repository = Repository.open(tmp_path)
    tree = repository.resolve("HEAD:cases/demo/toy/workspace")
    assert tree
    found = read_folder(workspace)
    assert found == read_tree(repository, tree, "cases/demo/toy/workspace")
    assert (found["tool"].mode, found["link"].mode) == (EXECUTABLE, SYMLINK)


def test_what_is_written_is_what_was_read(tmp_path: Path) -> None:
    files = {**OLD, "deep/x.bin": File(EXECUTABLE, b"\x00\xff")}
    assert read_folder(write_version(files, tmp_path / "new")) == files


def test_docs_are_never_written_for_a_judge(tmp_path: Path) -> None:
    more = {"docs/notes.md": File(REGULAR, b"n"), "docs/deep/x.md": File(REGULAR, b"x")}
    assert read_folder(write_version({**OLD, **more}, tmp_path / "new")) == {
        path: file for path, file in OLD.items() if not path.startswith("docs/")
    }


def test_a_link_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a link or a submodule"):
        write_version({"link": File(SYMLINK, b"/etc")}, tmp_path / "new")


def test_a_pipe_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe: is not a plain file"):
        read_folder(tmp_path)


def test_a_folder_is_measured_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match=f"has 1 file of {1 << 40} bytes; a workspace has at most"):
        read_folder(tmp_path)
    (tmp_path / "weights.bin").unlink()
    for number in range(4):
        (tmp_path / f"k{number}.py").touch()
    monkeypatch.setattr(agent_version, "MAX_FILES", 3)
    with pytest.raises(UsageError, match="has 4 files of 0 bytes"):
        read_folder(tmp_path)
