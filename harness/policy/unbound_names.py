"""Names that a file reads and never binds, and types that are made without a class: what both stand for is not written.

A package's globals have its submodules, whoever imports them. A type that is called by the object it was asked of makes
functions out of any code, and one that is made of strings has methods that no class statement says.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from hillclimb.harness.policy.allowed import words
from hillclimb.harness.policy.names import DottedNames, attribute_of, imported, nodes_of

OF_SITE = words("help credits license copyright exit quit")
"""Put among the builtins by Python's site, for people at a prompt; they import and read by text."""

TOLD_OF_TYPES = words("__name__ __qualname__ __doc__")
"""What may be asked of a type that was not named."""


def find_unbound_names(
    tree: ast.AST, names: DottedNames, modules: Container[str]
) -> Iterator[tuple[int, str]]:
    """(line, problem); `modules` are all modules and packages of the workspace."""
    bound = {name: node for node in nodes_of(tree) for name in _bound(node)}
    is_package = names.module == names.package
    for node in nodes_of(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name not in bound:
                if name in OF_SITE:
                    yield node.lineno, f"uses {name!r}, which imports or reads what it is told; leave it out"
                elif is_package and f"{names.package}.{name}" in modules:
                    yield node.lineno, f"reads the module {name!r} without importing it; import it here"
    for name, node in bound.items() if is_package else ():
        inner = f"{names.package}.{name}"
        path = imported(node, names.package).get(name, "")
        if inner in modules and path != inner and not path.startswith(f"{inner}."):
            line = getattr(node, "lineno", 0)
            yield line, f"binds {name!r}, which is the module {inner} as well; call one of them otherwise"


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
        case ast.Import() | ast.ImportFrom():
            yield from imported(node)
        case _ if type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple"):  # Python 3.12
            yield str(getattr(node, "name", ""))


def find_made_types(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, problem) of a type that is called, handed on or made without being named."""
    plain = {id(part) for node in nodes_of(tree) for part in _plain_uses(node)}
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


def _plain_uses(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node that may be a type: it is compared, or asked for its name, or stands in an annotation."""
    match node:
        case ast.Compare(left=left, comparators=others):
            yield from (left, *others)
        case ast.Attribute(value=value, attr=name) if name in TOLD_OF_TYPES:
            yield value
        case ast.FormattedValue(value=value):
            yield value
        case ast.Call(func=ast.Name(id="type") as function, args=[_], keywords=[]):
            yield function
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, ast.Tuple(elts=kinds)]):
            yield from kinds
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kind]):
            yield kind
        case ast.arg(annotation=ast.expr() as said) | ast.AnnAssign(annotation=said):
            yield from _names(said)
        case ast.FunctionDef(returns=ast.expr() as said) | ast.AsyncFunctionDef(returns=ast.expr() as said):
            yield from _names(said)


def _names(said: ast.expr) -> Iterator[ast.AST]:
    """Those of an annotation, which binds none of them and calls nothing."""
    parts = list(ast.walk(said))
    if not any(isinstance(part, ast.NamedExpr | ast.Call) for part in parts):
        yield from (part for part in parts if isinstance(part, ast.Name))
