"""Holds numba's signatures to names of its types: numba evaluates the text of one as Python, with all builtins."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from typing import Any

MAKERS = ("Array", "Tuple", "UniTuple", "List", "Optional", "DictType", "ListType", "Set", "NamedTuple")
"""Classes of types that a signature may call."""

PLAIN = (
    ast.Expression,
    ast.Call,
    ast.Subscript,
    ast.Slice,
    ast.Tuple,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.keyword,
)


def restrict_signatures() -> None:
    """In this process, once numba is imported and before the workspace is."""
    sigutils: Any = importlib.import_module("numba.core.sigutils")
    sigutils.eval = evaluate


def evaluate(text: str, globals: Mapping[str, Any], known: Mapping[str, Any]) -> object:
    """The type that a signature says. Raises ValueError for anything but types, brackets, numbers and commas."""
    types: Any = importlib.import_module("numba.core.types")
    tree = ast.parse(text.strip(), mode="eval")
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    strange = [name for name in names if name not in MAKERS and not isinstance(known.get(name), types.Type)]
    if strange or not all(isinstance(node, PLAIN) for node in ast.walk(tree)):
        raise ValueError(f"signature {text!r} says more than types of numba's; write it out of them")
    return eval(compile(tree, "<signature>", "eval"), {"__builtins__": {}}, dict(known))
