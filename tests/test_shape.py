"""The shape of the code: small folders, files and functions, errors that are not swallowed, one meaning a name."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax_trees import nodes

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.xdist_group("syntax trees")

MAX_FILES = 15
"""Python files in a folder, `__init__.py` aside."""
MAX_LINES = 400
MAX_FUNCTION_LINES = 60
"""Lines, decorators and docstring included."""
BROAD_EXCEPTS = 0.3
"""`except Exception` and the like for every 1000 lines."""

FILES = sorted(path for top in ("agent", "harness") for path in (ROOT / top).rglob("*.py"))


def test_no_folder_is_crowded() -> None:
    counts = Counter(path.parent for path in FILES if path.name != "__init__.py")
    assert {str(folder): n for folder, n in counts.items() if n > MAX_FILES} == {}


def test_no_file_is_long() -> None:
    lines = {str(path): path.read_text().count("\n") for path in FILES}
    assert {path: n for path, n in lines.items() if n > MAX_LINES} == {}


def test_no_function_is_long() -> None:
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert long == []


def is_broad(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(kind is None or getattr(kind, "id", "") in ("Exception", "BaseException") for kind in kinds)


def test_errors_are_not_swallowed() -> None:
    """Broad handlers stand at borders only, each with its reason beside it; cleanup is an ExitStack."""
    total = sum(path.read_text().count("\n") for path in FILES)
    broad = [(path, node) for path in FILES for node in nodes(path) if is_broad(node)]
    assert len(broad) <= BROAD_EXCEPTS * total / 1000
    for path, node in broad:
        assert isinstance(node, ast.ExceptHandler)
        line = path.read_text().split("\n")[node.lineno - 1]
        assert "#" in line or isinstance(node.body[-1], ast.Raise), f"{path}:{node.lineno} says no reason"


def test_a_name_of_a_type_means_one_thing() -> None:
    where = defaultdict(list)
    for path in FILES:
        for name in {name for node in ast.parse(path.read_text()).body for name in types_named(node)}:
            where[name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


def types_named(node: ast.stmt) -> Iterator[str]:
    """A class, or a name such as `Key = tuple[str, int]`, without its underscore; type variables mean nothing alone."""
    if isinstance(node, ast.ClassDef):
        yield node.name.lstrip("_")
    if isinstance(node, ast.Assign) and not ast.unparse(node.value).startswith("TypeVar("):
        names = [target.id.lstrip("_") for target in node.targets if isinstance(target, ast.Name)]
        yield from (name for name in names if name[:1].isupper() and not name.isupper() and "_" not in name)


@pytest.mark.parametrize(
    "source",
    ["try: x\nexcept: y", "try: x\nexcept (OSError, Exception): y", "try: x\nexcept BaseException: y"],
)
def test_a_broad_handler_is_seen(source: str) -> None:
    assert any(map(is_broad, ast.walk(ast.parse(source))))


def test_a_narrow_handler_is_not() -> None:
    assert not any(map(is_broad, ast.walk(ast.parse("try: x\nexcept (OSError, ValueError): y"))))
