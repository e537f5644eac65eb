"""What libraries read in a kernel's file otherwise than Python does: Triton takes functions from its text."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
from collections.abc import Container, Iterator, Sequence, Set
from functools import cache

from hillclimb.harness.policy.allowed import words
from hillclimb.harness.policy.names import DottedNames, bound_by, nodes_of

FUNCTION = re.compile(r"\s*(async\s+)?def\b")

BROUGHT = words("ir_override extern_libs")
"""Options by which Triton is given code that is no source."""

OF_TEXT = words("strip lstrip rstrip replace upper lower startswith endswith removeprefix removesuffix")
"""Methods of str that Triton calls on annotations and options."""

DRIVER_TYPES = "cuda.bindings.driver.CU"
HANDLES = words(
    "CUdeviceptr CUdevice CUcontext CUstream CUevent CUmodule CUlibrary CUfunction CUkernel CUgraph CUgraphExec"
)
"""Types of the driver that are a number: what it is given is not an address of theirs."""

READ_BY_TRITON = words("_src parse")
"""Of a kernel of Triton's: its text, and what makes a tree of it."""


PLAIN_ENCODINGS = words("utf-8 utf-8-sig ascii iso8859-1")
"""In which one line is one line to everybody."""


def lines_of(source: bytes) -> Sequence[str]:
    """As inspect reads them. Raises SyntaxError for an encoding by which others may read other lines."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    if codecs.lookup(encoding).name not in PLAIN_ENCODINGS:
        raise SyntaxError(f"the file is in {encoding[:40]}; write it in UTF-8")
    return io.TextIOWrapper(io.BytesIO(source), encoding, errors="replace").readlines()


def find_other_texts(tree: ast.AST, lines: Sequence[str], names: DottedNames) -> Iterator[tuple[int, str]]:
    """(line, problem) where a workspace uses Triton: other text than a function's own, and who hands it over."""
    for node in nodes_of(tree):
        match node:
            case ast.Constant(value=str() | bytes()) | ast.JoinedStr():
                yield from _functions_in(node, lines)
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) if name in READ_BY_TRITON:
                yield node.lineno, f"changes '.{name}', by which Triton reads a kernel"
            case ast.ClassDef(bases=bases) if any(_is_of_triton(names.path(base)) for base in bases):
                yield node.lineno, "derives a class from Triton's, whose methods are handed its compiler"
            case ast.ClassDef(bases=bases) if any(_is_text(base) for base in bases) and not _is_choice(node):
                yield node.lineno, "derives a class from str, whose methods a compiler calls; leave str out"
            case ast.ClassDef(body=body) if OF_TEXT & _bound_in(body):
                name = min(OF_TEXT & _bound_in(body))
                yield (
                    node.lineno,
                    f"defines {name!r}, a method of text that a compiler calls; call it otherwise",
                )
        match node:
            case ast.keyword(arg=said) | ast.Constant(value=said) if said in BROUGHT:
                yield _line(node), f"says {said}, which brings code that nobody reads; leave it out"


@cache
def _is_structure(name: str) -> bool:
    """Whether a type of the driver is one that lies at an address; enumerations and numbers are none."""
    if "." in name or name in HANDLES:
        return False
    try:
        from cuda.bindings import driver  # type: ignore[import-untyped]  # here: most machines have none
    except ImportError:
        return True
    return hasattr(getattr(driver, name, None), "getPtr")


def uses_fields(tree: ast.AST, names: DottedNames) -> bool:
    """Whether it gets hold of a dataclass's fields."""
    return any(path in ("dataclasses.field", "dataclasses.fields") for _, path in names.uses(tree))


def find_named_fields(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, problem) where a workspace has fields of dataclasses, which put a field's name into code that they run."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and node.attr == "name" and isinstance(node.ctx, ast.Store):
            yield node.lineno, "changes '.name', which dataclasses run as code; call it otherwise"


def find_addresses(tree: ast.AST, names: DottedNames) -> Iterator[tuple[int, str]]:
    """(line, problem) of structures of the CUDA driver that are told where they lie."""
    plain: set[int] = set()
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=function, args=[], keywords=[]):
                plain.add(id(function))
            case ast.arg(annotation=ast.expr() as said) | ast.AnnAssign(annotation=said):
                plain.update(id(part) for part in ast.walk(said))
    for node, path in names.uses(tree):
        name = path.removeprefix("cuda.bindings.driver.")
        if path.startswith(DRIVER_TYPES) and id(node) not in plain and _is_structure(name):
            yield node.lineno, f"may give {name} an address; make it without one, and set its parts"


def find_named_types(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, problem) where a workspace uses numba: what it makes of a value goes by the name of a type."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and node.attr == "name" and not isinstance(node.ctx, ast.Load):
            yield node.lineno, "changes '.name', by which numba chooses what makes a value; call it otherwise"


def find_foreign_wraps(tree: ast.AST, names: DottedNames) -> Iterator[tuple[int, str]]:
    """(line, problem) of functools.wraps around what a library has, whose text and marks a function takes on."""
    others = {
        name
        for node in nodes_of(tree)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.arg)
        for name in bound_by(node)
    }
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=function, args=[wrapped]) if names.path(function) == "functools.wraps":
                if (
                    not isinstance(wrapped, ast.Name)
                    or wrapped.id in others
                    or names.path(wrapped) is not None
                ):
                    yield node.lineno, "wraps what is no function of this file's; write a function around it"


def wrapping_functions(tree: ast.AST, names: DottedNames) -> Iterator[str]:
    """Dotted names of functions in which functools.wraps stands around a parameter."""
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parameters = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
            if any(_is_wrapped(part, parameters, names) for part in ast.walk(node)):
                yield f"{names.module}.{node.name}"


def find_wrapped_parameters(
    tree: ast.AST, names: DottedNames, wrapping: Set[str]
) -> Iterator[tuple[int, str]]:
    """(line, problem) where one of the `wrapping` functions is otherwise used than before a function that is no kernel.

    What it returns has the marks of what it is given, and Triton looks for its own marks.
    """
    plain = {id(part) for node in nodes_of(tree) for part in _decorating(node, names)}
    for made in (node for node in nodes_of(tree) if isinstance(node, ast.ClassDef)):
        parameters = {part.arg for part in ast.walk(made) if isinstance(part, ast.arg)}
        if any(_is_wrapped(part, parameters, names) for part in ast.walk(made)):
            yield made.lineno, "has a method that calls wraps, whose result has marks that Triton looks for"
    for node in nodes_of(tree):
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        own = f"{names.module}.{node.id}" if isinstance(node, ast.Name) else None
        if {own, names.path(node)} & wrapping and id(node) not in plain:
            yield (
                node.lineno,
                "uses a function that calls wraps otherwise than as @decorator of a plain function",
            )


def _is_wrapped(node: ast.AST, parameters: Container[str], names: DottedNames) -> bool:
    match node:
        case ast.Call(func=function, args=[ast.Name(id=name)]) if name in parameters:
            return names.path(function) == "functools.wraps"
    return False


def _decorating(node: ast.AST, names: DottedNames) -> Iterator[ast.AST]:
    """Decorators of a function that is no kernel, and what a function returns."""
    match node:
        case ast.FunctionDef(decorator_list=made):
            called = [one.func if isinstance(one, ast.Call) else one for one in made]
            yield from () if any(_is_of_triton(names.path(one)) for one in called) else called[-1:]
            inner = {part.name for part in ast.walk(node) if isinstance(part, ast.FunctionDef)} - {node.name}
            for part in ast.walk(node):
                if (
                    isinstance(part, ast.Return)
                    and isinstance(part.value, ast.Name)
                    and part.value.id in inner
                ):
                    yield part.value


def _functions_in(text: ast.Constant | ast.JoinedStr, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    for number in range(text.lineno + 1, (text.end_lineno or text.lineno) + 1):
        if FUNCTION.match(lines[number - 1]):
            yield (
                number,
                "begins a line of a string with 'def', which Triton takes for the function; begin it otherwise",
            )


def _bound_in(body: Sequence[ast.stmt]) -> set[str]:
    """Names that a class's body binds, functions' own ones among them."""
    return {name for statement in body for part in ast.walk(statement) for name in bound_by(part)}


def _is_of_triton(path: str | None) -> bool:
    return path is not None and path.split(".")[0] == "triton"


def _is_text(base: ast.expr) -> bool:
    return isinstance(base, ast.Name) and base.id == "str"


def _is_choice(made: ast.ClassDef) -> bool:
    """Whether it is an enumeration of plain values, of which nothing can be derived."""
    values = [part for part in made.body if isinstance(part, ast.Assign)]
    others = [part for part in made.body if part not in values and not isinstance(part, ast.Expr)]
    return (
        len(made.bases) == 2
        and bool(values)
        and not others
        and all(isinstance(part.value, ast.Constant) for part in values)
    )


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))
