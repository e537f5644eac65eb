"""What workspace code may not even say: a reading of its source, never an import of it.

A first line of defence against honest overreach and lazy cheats; it can be talked around by code that sets its
mind to it (docs/trust.md). What cannot be talked around is the sandbox, the gate and the clock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

from harness.case.case import Policy
from harness.errors import CandidateFault
from harness.judge.finished import LIBRARY_CALLS, captured_graphs, finished_operators, has_own_rules
from harness.judge.naming import Names, attribute_of, module_name
from harness.records import Reason

__all__ = ["DYNAMIC", "LIBRARY_CALLS", "check_policy"]

DYNAMIC = frozenset(
    {
        "eval",
        "exec",
        "compile",
        "vars",
        "globals",
        "locals",
        "__dict__",
        "__getattribute__",
        "__import__",
        "__builtins__",
        "__loader__",
        "__spec__",
        "__globals__",
        "__closure__",
        "__code__",
        "__subclasses__",
        "setattr",
        "delattr",
    }
)
"""Names that would let code say the rest unseen."""

REACHING = frozenset(
    {
        "sys",
        "gc",
        "inspect",
        "builtins",
        "importlib",
        "ctypes",
        "cffi",
        "subprocess",
        "socket",
        "multiprocessing",
        "_getframe",
        "f_back",
        "f_locals",
        "f_globals",
        "gi_frame",
        "tb_frame",
    }
)
"""Attributes that lead out of a kernel: to its caller, to other modules through one that imports them."""

NOT_KERNELS = frozenset({"tests"})
"""Workspace folders that are never imported by a kernel; importing from them is refused."""

LARGEST = 1 << 20
"""Bytes of the largest source file that is read; a kernel written by hand has a few thousand."""

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError, OSError)
"""What ast.parse raises for bytes that are no program, or one nested deeper than the parser's own stack."""


def check_policy(workspace: Path, policy: Policy) -> None:
    """Raises CandidateFault: POLICY naming file, line and what is not allowed there, or DOES_NOT_LOAD."""
    files = [path for path in sorted(workspace.rglob("*.py")) if _may_be_imported(path, workspace)]
    own = {path.relative_to(workspace).parts[0].removesuffix(".py") for path in files}
    trees = {path.relative_to(workspace): _parse(path, str(path.relative_to(workspace))) for path in files}
    names: dict[str, Names] = {}
    for file, tree in trees.items():
        names[module_name(file)] = Names(tree, names)
    for file, tree in trees.items():
        for line, problem in sorted(
            _offences(tree, names[module_name(file)], own, policy), key=itemgetter(0)
        ):
            raise CandidateFault(Reason.POLICY, f"{file}:{line}: {problem}")


def _may_be_imported(path: Path, workspace: Path) -> bool:
    return path.is_file() and path.relative_to(workspace).parts[0] not in NOT_KERNELS


def _parse(path: Path, name: str) -> ast.Module:
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise ValueError(f"has {size} bytes; a source file has at most {LARGEST}")
        return ast.parse(path.read_bytes())
    except UNREADABLE as error:
        told = str(error) or "nested too deeply to be parsed"
        raise CandidateFault(Reason.DOES_NOT_LOAD, f"{name}: {type(error).__name__}: {told}") from None


def _offences(tree: ast.AST, names: Names, own: set[str], policy: Policy) -> Iterator[tuple[int, str]]:
    """(line, problem) of everything that the policy does not allow."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        problems = [*_imports(node, own, policy), *_disguises(node, id(node) in called, names)]
        problems += _patches(node, names, own)
        yield from ((getattr(node, "lineno", 0), problem) for problem in problems)
    if not policy.graphs:
        yield from captured_graphs(tree, names)
    if not policy.library_calls:
        yield from finished_operators(tree, names, own, with_tensors="torch" in policy.imports)


def _imports(node: ast.AST, own: set[str], policy: Policy) -> Iterator[str]:
    for module in _imported(node):
        if module not in own and module not in policy.imports:
            allowed = ", ".join(policy.imports)
            yield f"imports {module!r}; policy.imports allows {allowed} and the workspace's own modules"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [(node.module or "").split(".")[0]]
    return []


def _disguises(node: ast.AST, is_called: bool, names: Names) -> Iterator[str]:
    """Names that hide others, and getattr where its literal name cannot be read off."""
    said, attribute = {_name(node), attribute_of(node)}, attribute_of(node)
    if has_own_rules(names.path(node)):
        said, attribute = said - {"compile"}, None
    for name in sorted(DYNAMIC.intersection(filter(None, said))):
        yield f"uses {name!r}, which hides what the code does"
    if attribute in REACHING:
        yield f"uses '.{attribute}', which leads out of the kernel"
    if _name(node) == "getattr" and not is_called:
        yield "uses getattr without calling it there, which hides what the code does"
    if isinstance(node, ast.Call) and _name(node.func) == "getattr" and attribute_of(node) is None:
        yield "calls getattr with a computed name, which hides what the code does"


def _patches(node: ast.AST, names: Names, own: set[str]) -> Iterator[str]:
    """Assignments into modules that are not the workspace's own."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        path = names.path(node)
        if path is not None and path.split(".")[0] not in own:
            yield f"changes {path}, which is not the workspace's own"


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name.split(".")[-1]
    return None
