"""The syntax trees of our files, parsed once a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a Python file, in no order to rely on."""
    return tuple(ast.walk(ast.parse(path.read_text())))
