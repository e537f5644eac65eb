"""The files of this repository that a module imports, read off its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


PUBLIC_NAMES = ROOT / "hillclimb" / "__init__.py"
"""Imports the public API when one of its names is asked for, and nothing when the package is imported."""


@cache
def imported_files(path: Path) -> tuple[Path, ...]:
    """That a module imports itself, or a program in one of its texts; packages on the way included."""
    if path == PUBLIC_NAMES:
        return ()
    names = {name for tree in _trees(path.read_text()) for name in _names(tree)}
    return tuple(file for name in names for file in _files(name))


def _trees(source: str) -> Iterator[ast.AST]:
    """The module's own tree, and that of every text in it that is Python, such as programs that tests start."""
    tree = ast.parse(source)
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _may_import(node.value):
            try:
                yield ast.parse(node.value)
            except SyntaxError:
                continue


def _may_import(text: str) -> bool:
    return "import" in text and ("hillclimb" in text or "tests" in text)


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


@cache
def _files(name: str) -> tuple[Path, ...]:
    """A module's file and those of the packages above it; none for a name that is no module of the repository."""
    parts = name.split(".")
    if parts[0] not in ("hillclimb", "tests"):
        return ()
    bases = [ROOT.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    files = [file for base in bases for file in (base.with_suffix(".py"), base / "__init__.py")]
    return tuple(file.resolve() for file in files if file.is_file())
