"""Strings that a library evaluates: numba's signatures are Python, run with all of its builtins."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hillclimb.harness.policy.allowed import NUMBA_TYPE_MAKERS, NUMBA_TYPES
from hillclimb.harness.policy.names import DottedNames, attribute_of, nodes_of

TAKES_SIGNATURES = re.compile(r"numba\.(njit|jit|vectorize|guvectorize|stencil|objmode|cuda\.jit)$")
UFUNCS = re.compile(r"numba\.(gu)?vectorize$")
KEYWORDS = ("signature_or_function", "ftylist_or_function", "ftylist", "func_or_sig", "signature")
LAYOUT = re.compile(r"[\s(),a-z0-9]*->[\s(),a-z0-9]*$")
"""guvectorize's second argument, such as (n),(n)->()."""
WORDS_OF_TYPES = NUMBA_TYPES | NUMBA_TYPE_MAKERS


def find_evaluated_strings(tree: ast.AST, names: DottedNames) -> Iterator[tuple[int, str]]:
    """(line, problem) of each signature that is no plain one of numba's types, and of what hides one."""
    functions = _functions(tree)
    called = {id(node.func): node for node in nodes_of(tree) if isinstance(node, ast.Call)}
    bases = {id(base) for node in nodes_of(tree) if isinstance(node, ast.ClassDef) for base in node.bases}
    decorators = {id(node) for made in nodes_of(tree) for node in getattr(made, "decorator_list", ())}
    for node, path in names.meanings(tree):
        if id(node) in bases and path.startswith("numba."):
            yield (
                node.lineno,
                f"derives a class from {path}, whose methods numba hands its own insides; leave it out",
            )
        if not TAKES_SIGNATURES.match(path):
            continue
        if id(node) not in called and id(node) not in decorators:
            yield node.lineno, f"hands {path} on, which evaluates what it is given; use it as a decorator"
        elif id(node) in called:
            yield from _call_problems(called[id(node)], names, functions)


def makes_ufuncs(tree: ast.AST, names: DottedNames) -> bool:
    """Whether numba makes ufuncs of functions in it: their method `add` evaluates text."""
    return any(UFUNCS.match(path) for _, path in names.meanings(tree))


def find_additions(tree: ast.AST, names: DottedNames) -> Iterator[tuple[int, str]]:
    """(line, problem) of each method `add`, where ufuncs are made."""
    for node in nodes_of(tree):
        if attribute_of(node) == "add" and not (names.path(node) or "").startswith("numpy."):
            line = getattr(node, "lineno", 0)
            yield line, "uses '.add' beside ufuncs of numba, whose own one evaluates text; use another method"


def _functions(tree: ast.AST) -> set[str]:
    """Names of functions that stand for nothing else."""
    nodes = nodes_of(tree)
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)} - assigned


def _call_problems(call: ast.Call, names: DottedNames, functions: set[str]) -> Iterator[tuple[int, str]]:
    for keyword in call.keywords:
        is_off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
        is_off = is_off or (keyword.arg == "inline" and isinstance(keyword.value, ast.Constant))
        if keyword.arg in ("cache", "pipeline_class", "inline") and not is_off:
            yield call.lineno, f"gives numba {keyword.arg}, which brings code that nobody reads; leave it out"
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg in (*KEYWORDS, None))]
    if (names.path(call.func) or "").endswith("objmode"):
        given = [keyword.value for keyword in call.keywords] + call.args
    for value in given:
        if not _is_plain(value, names, functions):
            yield (
                value.lineno,
                "gives numba a signature that is not written out there, which would be evaluated; write it out of "
                "numba's types, such as 'void(float32[:, :])'",
            )


def _is_plain(value: ast.expr, names: DottedNames, functions: set[str]) -> bool:
    match value:
        case ast.Constant(value=str(text)):
            return _is_signature(text) or bool(LAYOUT.match(text))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return all(_is_plain(part, names, functions) for part in parts)
        case ast.Name(id=name) if name in functions:
            return True
        case ast.Lambda():
            return True
    return _is_type(value, names)


def _is_signature(text: str) -> bool:
    """Whether it holds nothing but names of types, brackets, colons and commas."""
    rest = re.sub(r"[A-Za-z_]\w*", lambda word: "" if word[0] in WORDS_OF_TYPES else "?", text)
    return re.fullmatch(r"[\s\[\](),:\d]*", rest) is not None


def _is_type(value: ast.expr, names: DottedNames) -> bool:
    """numba.float32[:, ::1], numba.types.void(numba.float32): names of numba's types and what is made of them."""
    kinds = (
        ast.Name,
        ast.Attribute,
        ast.Call,
        ast.Subscript,
        ast.Slice,
        ast.Tuple,
        ast.Constant,
        ast.expr_context,
    )
    parts = list(ast.walk(value))
    paths = [names.path(node) or "" for node in parts if isinstance(node, ast.Name | ast.Attribute)]
    known = (path in ("numba", "numba.types") or path.split(".")[-1] in WORDS_OF_TYPES for path in paths)
    return all(isinstance(node, kinds) for node in parts) and all(known)
