"""What is read off a Python file without running it."""

from __future__ import annotations

import ast
from pathlib import Path

from hillclimb.agent.importers.formats.slicing import definitions
from hillclimb.harness.errors import UsageError

MAX_BYTES = 4 << 20
MAX_LINE = 96


def read_text(path: Path) -> str:
    """Raises UsageError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path} has over {MAX_BYTES >> 20} MiB; name the file that has the operator")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}); name a readable text file") from None


def parse_file(path: Path) -> ast.Module:
    """Raises UsageError where it is no Python."""
    try:
        return ast.parse(read_text(path), str(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no Python that can be parsed ({error}); mend it") from None


def parameters_of(tree: ast.Module, root: str, method: str = "") -> list[str]:
    """Names of a function's parameters, or of a method's without self."""
    found = definitions(tree).get(root)
    if method and isinstance(found, ast.ClassDef):
        found = next((s for s in found.body if isinstance(s, ast.FunctionDef) and s.name == method), None)
        return [] if found is None else _names(found)[1:]
    return _names(found) if isinstance(found, ast.FunctionDef) else []


def _names(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def docstring_of(tree: ast.Module, root: str) -> str:
    """The first line of a definition's docstring."""
    found = definitions(tree).get(root)
    text = ast.get_docstring(found) if isinstance(found, ast.FunctionDef | ast.ClassDef) else None
    return one_line(text or "")


def one_line(text: str) -> str:
    """The first line of a text that says anything, without control characters, cut where it is long."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line), "")
    plain = "".join(character for character in first if character.isprintable())
    return (plain if len(plain) <= MAX_LINE else plain[:MAX_LINE].rpartition(" ")[0] + " ...").rstrip(" .:")
