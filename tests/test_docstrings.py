"""What a docstring names exists: in backticks, after "Raises", in capitals, by its whole dotted name."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax_trees import nodes

ROOT = Path(__file__).resolve().parents[1]
OURS = sorted(path for top in ("agent", "harness") for path in (ROOT / top).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

pytestmark = pytest.mark.xdist_group("syntax trees")

FOREIGN = {
    *("gaierror", "cProfile", "RLIMIT_AS", "SCM_MAX_FD", "CLONE_NEW", "CAP_SYS_NICE"),
    *("SECCOMP_IOCTL_NOTIF_RECV", "SECCOMP_IOCTL_NOTIF_SEND"),
    *("FS_IOC_FSSETXATTR", "FS_IOC_SETFLAGS", "FS_IOC_SETVERSION"),
    *("RUN_FOLDER", "CASE_FOLDER"),  # arguments of command lines
}
"""Of the kernel and the standard library, and never written in code here."""

NAME = r"[A-Za-z_]\w*"


def names_in_code(path: Path) -> Iterator[str]:
    """Every name that a file defines, uses, or has within a short string."""
    for node in nodes(path):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield from [*name.split("."), other or ""]
            case ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.\-/ ]{1,60}", text):
                yield from re.findall(r"\w+", text)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string that stands by itself."""
    for node in nodes(path):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def names_in_text(text: str) -> Iterator[str]:
    for raised in re.findall(r"[Rr]aises? ((?:[A-Z]\w+)(?:(?:, | or | and )[A-Z]\w+)*)", text):
        yield from re.findall(r"[A-Z]\w+", raised)
    yield from re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)+\b", text)
    for dotted in re.findall(rf"`({NAME}(?:\.{NAME})*)(?:\(\))?`", text):
        yield from dotted.split(".")
    for dotted in re.findall(r"\bhillclimb((?:\.\w+)+)", text):
        yield from dotted.split(".")[1:]


def test_what_docstrings_name_exists() -> None:
    known = {*dir(builtins), *FOREIGN, "hillclimb", *(path.stem for path in OURS)}
    known |= {part for path in OURS for part in path.parts}
    known.update(name for path in OURS for name in names_in_code(path))
    unknown = [
        (path, line, name)
        for path in OURS
        for line, text in docstrings(path)
        for name in sorted(set(names_in_text(text)))
        if name not in known
    ]
    tests = "\n".join(path.read_text() for path in TESTS)
    assert [found for found in unknown if not re.search(rf"\b{found[2]}\b", tests)] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Raises CaseError, UsageError or KeyError where", ["CaseError", "UsageError", "KeyError"]),
        ("at most MAX_THINGS of `a.b`, not `a b` nor `f(x)`", ["MAX_THINGS", "a", "b"]),
        ("see hillclimb.harness.case", ["harness", "case"]),
        ("GPU and raise it", []),
    ],
)
def test_names_are_found_in_text(text: str, names: list[str]) -> None:
    assert list(names_in_text(text)) == names
