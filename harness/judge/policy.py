"""What workspace code may not even say: a reading of its source, never an import of it.

A first line of defence against honest overreach and lazy cheats; it can be talked around by code that sets its
mind to it (docs/trust.md). What cannot be talked around is the sandbox, the gate and the clock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from harness.case.case import Policy
from harness.errors import CandidateFault
from harness.records import Reason

LIBRARY_CALLS = frozenset(
    {
        "dot",
        "matmul",
        "vdot",
        "inner",
        "outer",
        "tensordot",
        "einsum",
        "linalg",
        "vecdot",
        "matvec",
        "vecmat",
        "convolve",
        "correlate",
        "blas",
        "lapack",
    }
)
"""Names under which NumPy and its kin offer finished products."""

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
    }
)
"""Names that would let code say the rest unseen."""

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
    for path in files:
        name = path.relative_to(workspace)
        for line, problem in _offences(_parse(path, str(name)), own, policy):
            raise CandidateFault(Reason.POLICY, f"{name}:{line}: {problem}")


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


def _offences(tree: ast.AST, own: set[str], policy: Policy) -> Iterator[tuple[int, str]]:
    """(line, problem) of everything that the policy does not allow."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        problems = [*_imports(node, own, policy), *_disguises(node, id(node) in called)]
        if not policy.library_calls:
            problems += _library_calls(node, own)
        yield from ((line, problem) for problem in problems)


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


def _disguises(node: ast.AST, is_called: bool) -> Iterator[str]:
    """Names that hide others, and getattr where its literal name cannot be read off."""
    if DYNAMIC & {name := _name(node), _attribute_got(node)}:
        yield f"uses {name if name in DYNAMIC else _attribute_got(node)!r}, which hides what the code does"
    if name == "getattr" and not is_called:
        yield "uses getattr without calling it there, which hides what the code does"
    if _gets_attribute(node) and _attribute_got(node) is None:
        yield "calls getattr with a computed name, which hides what the code does"


def _library_calls(node: ast.AST, own: set[str]) -> Iterator[str]:
    """Finished operators. A plain variable may have their names: only an import could give it the meaning."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
        yield _finished("@")
    names = {_attribute_got(node), *_library_names(node, own)}
    if isinstance(node, ast.Attribute):
        names.add(node.attr)
    yield from (_finished(name) for name in sorted(LIBRARY_CALLS.intersection(filter(None, names))))
    if isinstance(node, ast.ImportFrom) and "*" in _library_names(node, own):
        yield f"imports * from {node.module!r}, which hides which operators are called; name them"


def _library_names(node: ast.AST, own: set[str]) -> list[str]:
    """Every name in an import of something that is not the workspace's own."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return []
    if isinstance(node, ast.ImportFrom) and (node.level or own.intersection(_imported(node))):
        return []
    dotted = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
    return [part for name in dotted if name.split(".")[0] not in own for part in name.split(".")]


def _finished(name: str) -> str:
    return f"calls a finished operator ({name}); policy.library_calls is false"


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name.split(".")[-1]
    return None


def _gets_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) == "getattr"


def _attribute_got(node: ast.AST) -> str | None:
    """NAME in getattr(..., "NAME"); None for any other node."""
    match node:
        case ast.Call(args=[_, ast.Constant(value=str(name)), *_]) if _gets_attribute(node):
            return name
    return None
