"""Which knobs a workspace's source never reads, told only where the source lets one be sure."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from hillclimb.harness.case.settings import COMPILED_SUFFIXES
from hillclimb.harness.knobs.knobs import KNOBS_FILE

_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb"})
_GETTERS = frozenset({"get", "pop", "setdefault", "__getitem__", "__contains__"})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class _Unknowable(Exception):
    """A name is computed in a way that cannot be followed."""


@dataclass
class _KnobNames:
    """The names that a source may ask the environment for."""

    patterns: list[str] = field(default_factory=list)
    """Regular expressions: of an f-string, what stands between its values."""
    readers: dict[str, int] = field(default_factory=dict)
    """Functions that ask for the name in one of their parameters -> its position."""


def unread_knobs(files: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that no file reads: named in no string constant, and matched by no name that is put together.

    `files` are a workspace's text files by path. Empty where a name may be computed otherwise, as in a loop over the
    environment, or where a file cannot be parsed. A name that a file of another kind holds counts as read. Where there
    is a source in C or C++ all are read: they are macros and flags of its compiler.
    """
    if any(PurePosixPath(path).suffix in COMPILED_SUFFIXES for path in files):
        return ()
    others = "\n".join(text for path, text in files.items() if not path.endswith(".py") and _may_read(path))
    try:
        trees = [_parse(text) for path, text in files.items() if path.endswith(".py")]
        asked = _follow(trees)
    except (_Unknowable, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    said = "\n".join([others, *(constant for tree in trees for constant in _constants(tree))])
    return tuple(
        name
        for name in names
        if name not in said and not any(re.fullmatch(pattern, name) for pattern in asked.patterns)
    )


def _may_read(path: str) -> bool:
    return path != KNOBS_FILE and not path.startswith("docs/")


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _constants(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode(errors="replace")


def _follow(trees: Iterable[ast.Module]) -> _KnobNames:
    """Every question to the environment, and to functions that pass theirs on. Raises _Unknowable."""
    names, trees = _KnobNames(), list(trees)
    for tree in trees:
        _note_questions(tree, names)
    for tree in trees:
        has_reader = any(getattr(node, "name", "") in names.readers for node in tree.body)
        if not has_reader and any(KNOBS_FILE in constant for constant in _constants(tree)):
            raise _Unknowable(f"{KNOBS_FILE} is read by other means")
        _note_calls(tree, names)
    return names


def _note_questions(tree: ast.Module, names: _KnobNames) -> None:
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(
            alias.name in _ENVIRONMENT and alias.asname for alias in node.names
        ):
            raise _Unknowable("the environment under another name")
        if _named(node) in _ENVIRONMENT:
            _note_name(_question(node, parents), parents, names)


def _named(node: ast.AST) -> str:
    """The last part of a name in an expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _question(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> ast.expr:
    """The name that is asked for where the environment stands at `node`."""
    parent = parents.get(node)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return parent.slice
    if isinstance(parent, ast.Compare) and node in parent.comparators and len(parent.ops) == 1:
        return parent.left
    if isinstance(parent, ast.Attribute) and parent.attr in _GETTERS:
        node, parent = parent, parents.get(parent)
    elif not _named(node).startswith("getenv"):
        raise _Unknowable("the environment as a whole")
    if isinstance(parent, ast.Call) and parent.func is node and parent.args:
        return parent.args[0]
    raise _Unknowable("a question that is passed on")


def _note_name(name: ast.expr, parents: Mapping[ast.AST, ast.AST], names: _KnobNames) -> None:
    """Take in one name that is asked for: a constant is found elsewhere, a parameter makes its function a reader."""
    if isinstance(name, ast.Name):
        function = _function_of(name, parents)
        parameters = [argument.arg for argument in function.args.args] if function else []
        if function and name.id in parameters and isinstance(parents.get(function), ast.Module):
            if names.readers.setdefault(function.name, parameters.index(name.id)) != parameters.index(
                name.id
            ):
                raise _Unknowable(f"two parameters of {function.name}")
            return
    _note_argument(name, parents, names)


def _note_argument(name: ast.expr, parents: Mapping[ast.AST, ast.AST], names: _KnobNames) -> None:
    if isinstance(name, ast.Constant):
        return
    if isinstance(name, ast.JoinedStr):
        names.patterns.append(
            "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".*" for p in name.values)
        )
        return
    if isinstance(name, ast.Name) and _runs_over_constants(name, parents):
        return
    raise _Unknowable("a computed name")


def _runs_over_constants(name: ast.Name, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether the variable is that of a loop around it over a list of constants that is written out."""
    node: ast.AST | None = name
    while node is not None:
        loops = getattr(node, "generators", []) + ([node] if isinstance(node, ast.For) else [])
        for loop in loops:
            if isinstance(loop.target, ast.Name) and loop.target.id == name.id:
                return isinstance(loop.iter, ast.Tuple | ast.List | ast.Set) and all(
                    isinstance(value, ast.Constant) for value in loop.iter.elts
                )
        node = parents.get(node)
    return False


def _function_of(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> FunctionNode | None:
    found = parents.get(node)
    while found is not None and not isinstance(found, FunctionNode):
        found = parents.get(found)
    return found


def _note_calls(tree: ast.Module, names: _KnobNames) -> None:
    """What the readers are asked for, wherever they are named."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(a.name in names.readers and a.asname for a in node.names):
            raise _Unknowable("a reader under another name")
        if _named(node) not in names.readers:
            continue
        call, position = parents.get(node), names.readers[_named(node)]
        if not isinstance(call, ast.Call) or call.func is not node or len(call.args) <= position:
            raise _Unknowable("a reader that is passed on")
        _note_argument(call.args[position], parents, names)
