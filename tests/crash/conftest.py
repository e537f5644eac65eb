"""A repository with a user's half-finished work in it, its unkilled twin, and a driver to kill climbs with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.state import State, git
from tests.fakes.toy import write_toy


class Driver:
    """tests/crash/driver.py as a process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.driver"]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True
        )

    def climb(self, repository: Path, kill: str | None = None, after: float | None = None) -> dict[str, Any]:
        """One session, killed at a point or after some seconds, or left to end."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(
            json.dumps({"repository": str(repository), "kill": kill, "after": after}) + "\n"
        )
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    started = Driver()
    yield started
    started.close()


@pytest.fixture(scope="session")
def fast_folder() -> Iterator[Path]:
    """In memory where the machine has that: these tests flush thousands of times."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def template(fast_folder: Path) -> Path:
    """A user in the middle of something: staged, changed and unknown files, on a branch of their own."""
    root = fast_folder / "template"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch", "work", "--template=")
    write_toy(root)
    for name in ("README", "staged", "changed"):
        (root / name).write_text(f"{name}\n")
    (root / ".gitignore").write_text("/runs/\n")
    git(root, "add", ".")
    git(root, "-c", "user.name=u", "-c", "user.email=u@example.org", "commit", "--quiet", "-m", "start")
    (root / "staged").write_text("staged again\n")
    git(root, "add", "staged")
    (root / "changed").write_text("changed\n")
    (root / "unknown").write_text("unknown\n")
    (root / "cases/demo/toy/program.md").write_text("Not committed yet.\n")
    return root


@pytest.fixture
def repository(template: Path, fast_folder: Path) -> Iterator[Path]:
    """A copy of the template for one test."""
    with tempfile.TemporaryDirectory(dir=fast_folder) as name:
        yield shutil.copytree(template, Path(name) / "a repository")


@pytest.fixture(scope="session")
def twin(template: Path, fast_folder: Path, driver: Driver) -> State:
    """What a run that nobody killed ends with."""
    root = shutil.copytree(template, fast_folder / "twin")
    answer = driver.climb(root)
    assert not answer["error"], answer["error"]
    return State.of(root, answer["reached"])
