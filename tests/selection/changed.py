"""The test modules of what changed, nearest first: those that import a changed file, then those that import these.

    python -m tests.selection.changed     # prints their paths, for pytest

What changed is what git has as changed or new; where that is nothing, the last commit.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.selection.imports import ROOT, imported_files

MAX_MODULES = 40
"""More are left to a whole run: those farthest from what changed."""


def changed_files(root: Path = ROOT) -> list[Path]:
    """In the working tree, or of the last commit where the tree is clean. Raises CalledProcessError outside of git."""
    found = _git(root, "diff", "--name-only", "-z", "HEAD")
    found += _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return [root / name for name in found or _git(root, "diff", "--name-only", "-z", "HEAD~1", "HEAD")]


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name]


def nearest_tests(changed: Iterable[Path], importers: Mapping[Path, set[Path]]) -> list[Path]:
    """Test modules in the order of how many imports lie between them and a changed file."""
    near = list(dict.fromkeys(path for path in changed if path.suffix == ".py"))
    for path in near:  # grows while it is walked
        near += sorted(importers.get(path, set()) - set(near))
    return [path for path in near if path.name.startswith("test_") and path.is_file()]


def beside(changed: Iterable[Path], root: Path = ROOT) -> list[Path]:
    """Of files that nothing imports: tests/docs and test_docs.py for a page of docs, tests/cases for a case."""
    rooms = {path.relative_to(root).parts[0] for path in changed if path.suffix != ".py"}
    places = [root / "tests" / place for room in sorted(rooms) for place in (room, f"test_{room}.py")]
    return [place for place in places if place.exists()]


def all_importers(root: Path = ROOT) -> dict[Path, set[Path]]:
    """File -> the files that import it."""
    found: dict[Path, set[Path]] = {}
    for room in ("agent", "harness", "tests"):
        for path in (root / room).rglob("*.py"):
            for imported in imported_files(path):
                found.setdefault(imported, set()).add(path)
    return found


def main() -> None:
    changed = changed_files()
    found = [*nearest_tests(changed, all_importers()), *beside(changed)]
    for path in found[:MAX_MODULES]:
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
