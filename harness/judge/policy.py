"""What workspace code may not even say: a reading of its source, never an import of it.

A first line of defence against honest overreach and lazy cheats; it can be talked around by code that sets its
mind to it (docs/trust.md). What cannot be talked around is the sandbox, the gate and the clock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from pathlib import Path, PurePath

from harness.case.case import Policy
from harness.errors import CandidateFault
from harness.judge.finished import LIBRARY_CALLS, captured_graphs, finished_operators, has_own_rules
from harness.judge.naming import Names, attribute_of, module_name, nodes_of, parse
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

LARGEST = 256 << 10
"""Bytes of all source files together; a kernel written by hand has a few thousand, and reading takes 20 s a MiB."""

REMEMBERED = 64
"""Sources whose reading is kept: a side is read again at the start of each of its processes."""

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)
"""What ast.parse raises for bytes that are no program, or one nested deeper than the parser's own stack."""


def check_policy(workspace: Path, policy: Policy) -> None:
    """Raises CandidateFault: POLICY naming file, line and what is not allowed there, or DOES_NOT_LOAD."""
    complaint = _complaint(tuple(_read(workspace)), policy)
    if complaint is not None:
        raise CandidateFault(*complaint)


def _read(workspace: Path) -> Iterator[tuple[PurePath, bytes]]:
    """Every file that may be imported, by its path in the workspace."""
    total = 0
    for path in sorted(workspace.rglob("*.py")):
        name = path.relative_to(workspace)
        if not path.is_file() or name.parts[0] in NOT_KERNELS:
            continue
        try:
            total += path.stat().st_size
            if total > LARGEST:
                raise ValueError(f"all source together has over {LARGEST} bytes, the most that is read")
            yield name, path.read_bytes()
        except (OSError, ValueError) as error:
            raise CandidateFault(Reason.DOES_NOT_LOAD, _unreadable(name, error)) from None


@lru_cache(maxsize=REMEMBERED)
def _complaint(sources: tuple[tuple[PurePath, bytes], ...], policy: Policy) -> tuple[Reason, str] | None:
    """What there is to say against these files; None where nothing is."""
    own = {name.parts[0].removesuffix(".py") for name, _ in sources}
    trees: dict[PurePath, ast.Module] = {}
    for file, source in sources:
        try:
            trees[file] = parse(source)
        except UNREADABLE as error:
            return Reason.DOES_NOT_LOAD, _unreadable(file, error)
    names: dict[str, Names] = {}
    for file, tree in trees.items():
        names[module_name(file)] = Names(tree, names)
    for file, tree in trees.items():
        for line, problem in sorted(
            _offences(tree, names[module_name(file)], own, policy), key=itemgetter(0)
        ):
            return Reason.POLICY, f"{file}:{line}: {problem}"
    return None


def _unreadable(file: PurePath, error: BaseException) -> str:
    return f"{file}: {type(error).__name__}: {str(error) or 'nested too deeply to be parsed'}"


def _offences(tree: ast.AST, names: Names, own: set[str], policy: Policy) -> Iterator[tuple[int, str]]:
    """(line, problem) of everything that the policy does not allow."""
    called = {id(node.func) for node in nodes_of(tree) if isinstance(node, ast.Call)}
    for node in nodes_of(tree):
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
    name, attribute = _name(node), attribute_of(node)
    said = DYNAMIC.intersection((name, attribute))
    if (said or attribute in REACHING) and has_own_rules(names.path(node)):
        said, attribute = said - {"compile"}, None
    for dynamic in sorted(said):
        yield f"uses {dynamic!r}, which hides what the code does"
    if attribute in REACHING:
        yield f"uses '.{attribute}', which leads out of the kernel"
    if name == "getattr" and not is_called:
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
