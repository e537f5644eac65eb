"""Loads the file that an operator is given in, with some of its module-level constants changed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hillclimb.harness.errors import CaseError

NUMPY = ("np", "numpy")
NARROW = ("float16", "float32", "half", "single")
"""NumPy's names of what an exact computation replaces by float64."""


def load_source(
    file: Path, changed: Mapping[str, int] | None = None, *, is_exact: bool = False
) -> Mapping[str, Any]:
    """Its names, after it was run with these constants. `is_exact`: NumPy's narrow dtypes are float64 in it.

    Raises whatever it raises, and CaseError where it ends the process.
    """
    return _load(file, file.stat().st_mtime_ns, tuple(sorted((changed or {}).items())), is_exact)


@lru_cache(maxsize=64)
def _load(
    file: Path, _changed_at: int, changed: tuple[tuple[str, int], ...], is_exact: bool
) -> Mapping[str, Any]:
    name = f"hillclimb_source_{abs(hash((file, changed, is_exact)))}"
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # dataclasses look themselves up there
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
        changed_tree = _Changes(dict(changed), is_exact).visit(tree)
        code = compile(ast.fix_missing_locations(changed_tree), str(file), "exec")
        with _importable(file.parent):
            exec(code, module.__dict__)  # the user's own file, which stands beside the user's own contract
    except SystemExit as error:
        raise CaseError(file, "", f"ends the process while it is loaded ({error})", "take that out") from None
    return module.__dict__


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Modules beside the file are found, before others of the same name."""
    for path in folder.glob("*.py"):
        known = sys.modules.get(path.stem)
        if known is not None and getattr(known, "__file__", None) != str(path):
            del sys.modules[path.stem]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


class _Changes(ast.NodeTransformer):
    """Puts other values into module-level assignments of plain names; a tuple of one stays one."""

    def __init__(self, changed: Mapping[str, int], is_exact: bool) -> None:
        self._changed, self._is_exact = changed, is_exact

    def visit_Module(self, node: ast.Module) -> ast.AST:
        for statement in node.body:
            name = assigned_name(statement)
            if name and name in self._changed and isinstance(statement, ast.Assign | ast.AnnAssign):
                value: ast.expr = ast.Constant(self._changed[name])
                is_tuple = isinstance(statement.value, ast.Tuple)
                statement.value = ast.Tuple([value], ast.Load()) if is_tuple else value
                ast.copy_location(statement.value, statement)
        return self.generic_visit(node) if self._is_exact else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in NUMPY and node.attr in NARROW:
            node.attr = "float64"
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.copy_location(ast.Constant("float64"), node) if node.value in NARROW[:2] else node


def assigned_name(statement: ast.stmt) -> str | None:
    """The one plain name that a statement assigns to."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return None
