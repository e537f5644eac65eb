"""A yardstick: a case's operator as a library has it, by which kernels are measured.

It is the case author's own, as contract.py is. So its source is not read, and it may call what no kernel may; it runs
in the sandbox as kernels do.
"""

from __future__ import annotations

YARDSTICK_FILE = "yardstick.py"

YARDSTICK_IMPORTS = frozenset({"torch"})
"""What a yardstick may import besides the case's modules, of those that the runner imports first."""

MIN_PREPARE_SECONDS, MIN_MEMORY_MIB = 300.0, 32768
"""Least budgets of a yardstick: torch.compile is slow to import and to find what it made."""


def is_compiled(source: str) -> bool:
    """Whether torch.compile is to make it ready: unless a line says that it is not."""
    return "COMPILED = False" not in source.splitlines()
