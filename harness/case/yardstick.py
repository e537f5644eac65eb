"""A yardstick: a case's operator as a library has it, by which kernels are measured.

It is the case author's own, as contract.py is. So its source is not read, and it may call what no kernel may; it runs
in the sandbox as kernels do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

YARDSTICK_FILE = "yardstick.py"

YARDSTICK_IMPORTS = frozenset({"torch"})
"""What a yardstick may import besides the case's modules, of those that the runner imports first."""

MIN_PREPARE_SECONDS, MIN_MEMORY_MIB = 300.0, 32768
"""Least budgets of a yardstick: torch.compile is slow to import and to find what it made."""


def is_compiled(source: str | bytes) -> bool:
    """Whether torch.compile is to make it ready: unless it says COMPILED = False at its top level.

    Raises SyntaxError or ValueError for what is no Python.
    """
    found = [value for name, value in _constants(ast.parse(source)) if name == "COMPILED"]
    return not found or found[-1] is not False


def _constants(tree: ast.Module) -> Iterator[tuple[str, object]]:
    """Names that are given a constant at the top level, and those."""
    for line in tree.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = getattr(line, "value", None)
        if isinstance(line, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Constant):
            yield from ((target.id, value.value) for target in targets if isinstance(target, ast.Name))
