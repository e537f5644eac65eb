"""Folders given to `evaluate --commit` that would bring more than a workspace's own files into the commit of a win."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hillclimb.agent.git.version import read_folder, why_not_allowed, write_version
from hillclimb.harness.errors import UsageError

MUTABLE = ("*.py", "knobs.yaml", "docs/**")
HONEST = "def run(x, y):\n    y[:] = 2 * x + 1\n"


def folder_with(tmp_path: Path, *files: tuple[str, str]) -> Path:
    folder = tmp_path / "brought"
    for name, text in (("kernel.py", HONEST), *files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def complaint(tmp_path: Path, folder: Path) -> str | None:
    return why_not_allowed(read_folder(folder), read_folder(folder_with(tmp_path / "start")), MUTABLE)


@pytest.mark.parametrize(
    "name",
    [
        "benchmarks/main.yaml",
        ".gitattributes",
        ".gitmodules",
        ".git/hooks/post-checkout",
        "sub/.git/config",
        ".github/workflows/run.yml",
        "kernel.so",
        "kernel.pyc",
        "Makefile",
        "deep/kernel.cu",
        "kernel.py\n",
        "kernel.py ",
        "KNOBS.yaml",
    ],
)
def test_a_file_beyond_the_globs_is_named(tmp_path: Path, name: str) -> None:
    folder = folder_with(tmp_path)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("anything")
    told = complaint(tmp_path, folder)
    assert told is not None


@pytest.mark.parametrize("name", [".env", ".env.local", "docs/.env"])
def test_keys_are_left_where_they_are(tmp_path: Path, name: str) -> None:
    folder = folder_with(tmp_path, (name, "OPENAI_API_KEY=secret"))
    assert "secret" not in repr(read_folder(folder))


@pytest.mark.parametrize("target", ["/etc/passwd", "../../contract.py", "kernel.py", "nowhere"])
def test_a_link_is_no_file_of_a_workspace(tmp_path: Path, target: str) -> None:
    folder = folder_with(tmp_path)
    (folder / "more.py").symlink_to(target)
    assert complaint(tmp_path, folder) is not None
    with pytest.raises(UsageError, match="is a link"):
        write_version(read_folder(folder), tmp_path / "written")


def make_executable(folder: Path) -> None:
    (folder / "kernel.py").chmod(0o755)


def remove_the_entry(folder: Path) -> None:
    (folder / "kernel.py").unlink()
    (folder / "kernel.py").mkdir()
    (folder / "kernel.py" / "contract.txt").write_text("anything")


@pytest.mark.parametrize("change", [make_executable, remove_the_entry])
def test_a_file_that_is_something_else_is_named(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = folder_with(tmp_path)
    change(folder)
    assert complaint(tmp_path, folder) is not None


def test_an_honest_folder_is_let_through(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path, ("knobs.yaml", "{}\n"), ("docs/notes.md", "tried"), ("bands.py", "B = 1\n")
    )
    assert complaint(tmp_path, folder) is None
