"""The files of this repository that a module imports, directly or not, read off the syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def import_closure(modules: Iterable[Path]) -> set[Path]:
    """These files and every file of the repository that they import; packages on the way included."""
    seen: set[Path] = set()
    due = list(modules)
    while due:
        path = due.pop()
        if path not in seen:
            seen.add(path)
            due += _imported_files(path)
    return seen


PUBLIC_NAMES = ROOT / "hillclimb" / "__init__.py"
"""Imports the public API when one of its names is asked for, and nothing when the package is imported."""


@cache
def _imported_files(path: Path) -> tuple[Path, ...]:
    if path == PUBLIC_NAMES:
        return ()
    names = {name for tree in _trees(path.read_text()) for name in _names(tree)}
    return tuple(file for name in names for file in _files(name))


def _trees(source: str) -> Iterator[ast.AST]:
    """The module's own tree, and that of every text in it that is Python, such as programs that tests start."""
    tree = ast.parse(source)
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import" in node.value:
            try:
                yield ast.parse(node.value)
            except SyntaxError:
                continue


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_module(node.value):
            yield node.value  # "hillclimb.harness.candidate.runner", started by `python -m`


def _is_module(text: str) -> bool:
    return text.startswith("hillclimb.") and all(part.isidentifier() for part in text.split("."))


def _files(name: str) -> Iterator[Path]:
    """A module's file and those of the packages above it; none for a name that is no module of the repository."""
    parts = name.split(".")
    if parts[0] not in ("hillclimb", "tests"):
        return
    for depth in range(1, len(parts) + 1):
        base = ROOT.joinpath(*parts[:depth])
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                yield file
