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

DYNAMIC = frozenset(["eval", "exec", "compile", "__import__", "__builtins__", "__loader__", "__spec__"])
"""Names that would let code say the rest unseen."""

NOT_KERNELS = frozenset({"tests"})
"""Workspace folders that are never imported by a kernel; importing from them is refused."""


def check_policy(workspace: Path, policy: Policy) -> None:
    """Raises CandidateFault(POLICY) naming file, line and what is not allowed there."""
    files = [
        p for p in sorted(workspace.rglob("*.py")) if p.relative_to(workspace).parts[0] not in NOT_KERNELS
    ]
    own = {p.relative_to(workspace).parts[0].removesuffix(".py") for p in files}
    for path in files:
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError) as error:
            raise CandidateFault(Reason.DOES_NOT_LOAD, f"{path.name}: {error}") from None
        for line, problem in _offences(tree, own, policy):
            raise CandidateFault(Reason.POLICY, f"{path.relative_to(workspace)}:{line}: {problem}")


def _offences(tree: ast.AST, own: set[str], policy: Policy) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        for module in _imported(node):
            if module not in own and module not in policy.imports:
                allowed = ", ".join(policy.imports)
                yield (
                    line,
                    f"imports {module!r}; policy.imports allows {allowed} and the workspace's own modules",
                )
        name = _name(node)
        if name in DYNAMIC:
            yield line, f"uses {name!r}, which hides what the code does"
        if not policy.library_calls and (name in LIBRARY_CALLS or _is_matrix_product(node)):
            yield line, f"calls a finished operator ({name or '@'}); policy.library_calls is false"
        if isinstance(node, ast.Call) and _name(node.func) == "getattr" and not _has_literal_name(node):
            yield line, "calls getattr with a computed name, which hides what the code does"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [(node.module or "").split(".")[0]]
    return []


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name.split(".")[-1]
    return None


def _is_matrix_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult)


def _has_literal_name(call: ast.Call) -> bool:
    return len(call.args) >= 2 and isinstance(call.args[1], ast.Constant)
