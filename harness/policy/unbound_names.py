"""Names that a file reads and does not bind: a package's globals have its submodules, whoever imports them."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from hillclimb.harness.policy.allowed import words
from hillclimb.harness.policy.names import DottedNames, bound_by, imported, nodes_of

OF_SITE = words("help credits license copyright exit quit")
"""Put among the builtins by Python's site, for people at a prompt; they import and read by text."""


def find_unbound_names(
    tree: ast.AST, names: DottedNames, modules: Container[str]
) -> Iterator[tuple[int, str]]:
    """(line, problem); `modules` are all modules and packages of the workspace."""
    top = {name for node in getattr(tree, "body", ()) for name in _bound_at_top(node)}
    own = {id(node) for node in _arguments_read(tree)}
    is_package = names.module == names.package
    for node in nodes_of(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name not in top:
                if name in OF_SITE and id(node) not in own:
                    yield node.lineno, f"uses {name!r}, which imports or reads what it is told; leave it out"
                elif is_package and f"{names.package}.{name}" in modules:
                    yield node.lineno, f"reads the module {name!r} without importing it; import it at the top"
            case ast.Name(id=name, ctx=ast.Del()) if name in OF_SITE:
                yield node.lineno, f"deletes {name!r}, which stands for something else then"
        for name in bound_by(node) if is_package else ():
            inner = f"{names.package}.{name}"
            path = imported(node, names.package).get(name, "")
            if inner in modules and path != inner and not path.startswith(f"{inner}."):
                line = getattr(node, "lineno", 0)
                yield line, f"binds {name!r}, which is the module {inner} as well; call one of them otherwise"


def _bound_at_top(statement: ast.stmt) -> Iterator[str]:
    """What one statement at the top of a file binds, whatever happens."""
    match statement:
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
            yield from bound_by(statement)


def _arguments_read(tree: ast.AST) -> Iterator[ast.AST]:
    """Names in the bodies of functions that have an argument of that name."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        given = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        body = node.body if isinstance(node.body, list) else [node.body]
        inner = (part for statement in body for part in ast.walk(statement)) if given & OF_SITE else ()
        yield from (part for part in inner if isinstance(part, ast.Name) and part.id in given)
