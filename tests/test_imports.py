"""Every name that a script or a GPU test imports from our modules is there, though it may not run here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.syntax_trees import nodes

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for folder in ("scripts", "tests/gpu") for path in (ROOT / folder).rglob("*.py"))
OURS = ("hillclimb", "tests", "scripts")


def missing(path: Path) -> Iterator[str]:
    """`module.name` of what a file imports from our modules and is not there."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_ours(alias.name) and not find(alias.name))
        elif isinstance(node, ast.ImportFrom) and not node.level and is_ours(node.module or ""):
            yield from (
                f"{node.module}.{alias.name}" for alias in node.names if not has(str(node.module), alias.name)
            )


def is_ours(module: str) -> bool:
    return module.split(".")[0] in OURS


def find(module: str) -> Path | None:
    """A module's file; of a package, its `__init__.py`, or the folder where it has none."""
    place = ROOT.joinpath(*module.split("."))
    found = (place.with_suffix(".py"), place / "__init__.py", place)
    return next((path for path in found if path.exists()), None)


def has(module: str, name: str) -> bool:
    path = find(module)
    if path is None:
        return False
    return find(f"{module}.{name}") is not None or (path.suffix == ".py" and name in names_of(path))


@cache
def names_of(path: Path) -> frozenset[str]:
    """What a module binds; a lazy package binds what its stub declares."""
    stub = path.with_suffix(".pyi")
    return frozenset(
        bound for file in (path, stub) if file.exists() for node in nodes(file) for bound in bindings(node)
    )


def bindings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)


def test_what_is_imported_is_there() -> None:
    found = {str(path.relative_to(ROOT)): list(missing(path)) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import hillclimb.agent.nowhere",
        "from hillclimb.agent.nowhere import thing",
        "from hillclimb.agent.record.branch import find_branches",
        "from tests.fakes import nothing",
    ],
)
def test_what_is_gone_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "script.py").write_text(line)
    assert len(list(missing(tmp_path / "script.py"))) == 1


def test_what_is_there_in_any_form_is_not(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from hillclimb import climb, read_run\nfrom hillclimb.agent import record\nimport hillclimb.agent.cli\n"
        "from hillclimb.agent.record.ledger import Ledger\nimport torch.nowhere\n"
    )
    assert list(missing(tmp_path / "script.py")) == []
