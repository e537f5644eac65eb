"""Names that case.yaml and knobs.yaml say of the workspace, looked for in its source before anything is run.

Only what is certain is refused: a name that is made while the program runs is not looked for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hillclimb.harness.case.knob_reads import unread_knobs
from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, RESERVED, Knobs
from hillclimb.harness.wording import did_you_mean

MAX_SOURCE_BYTES = 1 << 20

UNREAD_FOLDERS = ("tests",)
"""Folders of a workspace that no kernel imports: importing from them is refused, and a sandbox shows them empty."""


def require_names(case_file: Path, workspace: Path, entry: str, knobs: Knobs) -> None:
    """Raises CaseError for an entry that is not there, and for knobs that file and source name differently."""
    file, _, function = entry.partition(":")
    if not _is_file(workspace / file):
        known = sorted(path.relative_to(workspace).as_posix() for path in workspace.rglob("*.py"))
        remedy = did_you_mean(file, known) or "name a file that is in workspace/"
        raise CaseError(case_file, "entry", f"value {entry!r}: there is no such file", remedy)
    trees = dict(_parsed(workspace))
    if workspace / file in trees:
        _require_function(case_file, entry, function, trees[workspace / file])
    _require_knobs(workspace, knobs, trees)


def _require_function(case_file: Path, entry: str, function: str, tree: ast.Module) -> None:
    names = set(_bound_names(tree))
    if function in names or "*" in names:
        return
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    remedy = did_you_mean(function, functions) or "name a function that the file defines"
    problem = f"value {entry!r}: {entry.partition(':')[0]} defines no {function!r}"
    raise CaseError(case_file, "entry", problem, remedy)


def _require_knobs(workspace: Path, knobs: Knobs, trees: dict[Path, ast.Module]) -> None:
    path = workspace / KNOBS_FILE
    texts = {text: file for file, tree in trees.items() for text in _texts(tree)}
    if not path.exists() and KNOBS_FILE in texts:
        problem = f"does not exist, and {texts[KNOBS_FILE].name} reads it"
        raise CaseError(path, "", problem, "create it, as cases/_template/workspace/knobs.yaml shows")
    asked = {name: file for file, tree in trees.items() for name in _asked_names(tree) if name not in knobs}
    unread = unread_knobs(_sources(workspace), knobs) if asked else ()
    if unread:
        name = unread[0]
        guess = did_you_mean(name, asked) or f"{', '.join(asked)} is read, which is no knob:"
        where = next(iter(asked.values())).name
        problem = f"no file of workspace/ reads it, and {where} reads {', '.join(map(repr, asked))}, which is no knob"
        raise CaseError(path, name, problem, f"{guess} give file and source the same name")


def _sources(workspace: Path) -> dict[str, str]:
    """The text files of a workspace that may read a knob, by path."""
    files = (path for path in sorted(workspace.rglob("*")) if _is_file(path))
    return {
        path.relative_to(workspace).as_posix(): path.read_text(errors="replace")
        for path in files
        if path.stat().st_size <= MAX_SOURCE_BYTES and "__pycache__" not in path.parts
    }


def _parsed(workspace: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Each source file that can be parsed; what cannot be is the gate's to tell."""
    for path in sorted(workspace.rglob("*.py")):
        try:
            if _is_file(path) and path.stat().st_size <= MAX_SOURCE_BYTES:
                yield path, ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
            continue


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Every name that any line binds, and every text, which may become one; `*` for all of another module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
    yield from _texts(tree)


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _asked_names(tree: ast.Module) -> Iterator[str]:
    """Names that may be knobs: in capitals, as an index or as the first argument of a call."""
    for node in ast.walk(tree):
        given = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(node, ast.Call) and node.args:
            given = node.args[0]
        if isinstance(given, ast.Constant) and isinstance(given.value, str) and _is_knob_name(given.value):
            yield given.value


def _is_knob_name(text: str) -> bool:
    return len(text) > 1 and text.isidentifier() and text.isupper() and not RESERVED.match(text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
