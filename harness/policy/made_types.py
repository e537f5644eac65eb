"""Types that are made or used without a class statement that says what they are.

A type that is called by the object it was asked of makes functions out of any code, and one that is made of strings has
methods that nobody reads.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from hillclimb.harness.policy.allowed import words
from hillclimb.harness.policy.names import DottedNames, attribute_of, bound_by, nodes_of

TYPES = words(
    "type object int float complex bool str bytes bytearray list tuple dict set frozenset slice range"
)
SHOWING, ASKING = words("print str repr"), words("isinstance issubclass")
"""Builtin functions that may be given a type that was not named."""

TOLD_OF_TYPES = words("__name__ __qualname__ __doc__")
"""What may be asked of a type that was not named."""


def find_made_types(tree: ast.AST, names: DottedNames) -> Iterator[tuple[int, str]]:
    """(line, problem) of a type that is called, handed on or made without being named, or of an unnamed one."""
    yield from _unnamed_bases(tree, names)
    bound = {name for node in nodes_of(tree) for name in bound_by(node)}
    plain = {id(part) for node in nodes_of(tree) for part in _plain_uses(node, bound)}
    for node in nodes_of(tree):
        match node:
            case ast.ClassDef(keywords=keywords) if any(one.arg in ("metaclass", None) for one in keywords):
                yield node.lineno, "gives a class a metaclass, which decides what its methods are"
            case ast.Call(func=ast.Name(id="type"), args=[_], keywords=[]) if id(node) in plain:
                pass
            case ast.Call(func=ast.Name(id="type")):
                yield (
                    node.lineno,
                    "makes a type, or uses one without its name; write a class, or use isinstance",
                )
            case ast.Name(id="type", ctx=ast.Load()) if id(node) not in plain:
                yield node.lineno, "hands 'type' on, which makes types unseen; call it, or name a class"
            case ast.Attribute() | ast.Call() if attribute_of(node) == "__class__" and id(node) not in plain:
                yield node.lineno, "uses a type without its name; name the class, or use isinstance"


def _unnamed_bases(tree: ast.AST, names: DottedNames) -> Iterator[tuple[int, str]]:
    """Base classes that are no import, no builtin and no class statement of this file."""
    renamed = {id(target) for node in nodes_of(tree) for target in _renamed_imports(node, names)}
    others = {
        name
        for node in nodes_of(tree)
        if id(node) not in renamed and not isinstance(node, ast.ClassDef | ast.Import | ast.ImportFrom)
        for name in bound_by(node)
    }
    for node in nodes_of(tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            made = base.value if isinstance(base, ast.Subscript) else base
            path = names.known(made)
            is_named = isinstance(made, ast.Name) if path is None else names.is_class(path)
            if not is_named or (isinstance(made, ast.Name) and made.id in others):
                yield (
                    base.lineno,
                    "derives a class from an unnamed one; name an imported class, or one of yours",
                )


def _renamed_imports(node: ast.AST, names: DottedNames) -> Iterator[ast.AST]:
    """TARGET in `TARGET = numpy.ndarray` and in `TARGET = object`, which other names may stand for."""
    match node:
        case ast.Assign(targets=[ast.Name() as target], value=value):
            is_builtin = isinstance(value, ast.Name) and value.id in TYPES
            yield from (target,) if is_builtin or names.known(value) is not None else ()


def _plain_uses(node: ast.AST, bound: Container[str]) -> Iterator[ast.AST]:
    """Parts of a node that may be a type: it is compared, shown, or asked for its name, or stands in an annotation.

    `bound` are names that the file binds: a builtin's name among them is no builtin.
    """
    match node:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()], comparators=others):
            yield from (left, *others)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[other]):
            yield from (left, other) if all(_is_known(one, bound) for one in (left, other)) else ()
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[ast.Tuple(elts=others)]):
            yield from (left, *others) if all(_is_known(one, bound) for one in others) else ()
        case ast.Attribute(value=value, attr=name) if name in TOLD_OF_TYPES:
            yield value
        case ast.FormattedValue(value=value, format_spec=None):
            yield value
        case ast.Call(func=ast.Name(id="type") as function, args=[_], keywords=[]):
            yield function
        case ast.Call(func=ast.Name(id=name), args=shown) if name in SHOWING and name not in bound:
            yield from shown
        case ast.Call(func=ast.Name(id=name), args=[_, kind]) if name in ASKING and name not in bound:
            yield from (kind.elts if isinstance(kind, ast.Tuple) else (kind,))
        case ast.arg(annotation=ast.expr() as said) | ast.AnnAssign(annotation=said):
            yield from _names(said, bound)
        case ast.FunctionDef(returns=ast.expr() as said) | ast.AsyncFunctionDef(returns=ast.expr() as said):
            yield from _names(said, bound)


def _is_known(part: ast.expr, bound: Container[str]) -> bool:
    """A builtin type by its name, or the type of something."""
    match part:
        case ast.Name(id=name):
            return name in TYPES and name not in bound
        case ast.Call(func=ast.Name(id="type"), args=[_], keywords=[]):
            return True
    return False


def _names(said: ast.expr, bound: Container[str]) -> Iterator[ast.AST]:
    """Those of an annotation that is made of builtin types alone, and so calls nothing of the workspace's."""
    parts = list(ast.walk(said))
    kinds = (ast.Name, ast.Constant, ast.Subscript, ast.Tuple, ast.BinOp, ast.BitOr, ast.Load)
    if all(isinstance(part, kinds) for part in parts):
        found = [part for part in parts if isinstance(part, ast.Name)]
        yield from found if all(one.id in TYPES and one.id not in bound for one in found) else ()
