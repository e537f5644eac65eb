"""The part of a source that computes: what an operator's definition needs, without what draws, checks and times."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from hillclimb.agent.importers.formats.value_lists import whole_number


def used_names(tree: ast.AST) -> set[str]:
    """Every plain name that is read in it and not bound by the function that reads it."""
    if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        arguments = tree.args
        bound = {a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)}
        body = tree.body if isinstance(tree.body, list) else [tree.body]
        stored = {
            n.id
            for s in body
            for n in ast.walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        outside = [arguments, *getattr(tree, "decorator_list", [])]
        inside = set().union(*map(used_names, body)) - bound - stored
        return inside.union(*map(used_names, outside))
    own = {tree.id} if isinstance(tree, ast.Name) else set()
    return own.union(*map(used_names, ast.iter_child_nodes(tree)))


def definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Top-level statements by the names that they bind."""
    found: dict[str, ast.stmt] = {}
    for statement in tree.body:
        for name in _bound(statement):
            found[name] = statement
    return found


def needed(tree: ast.Module, roots: Iterable[str]) -> list[ast.stmt]:
    """The top-level statements that these names need, in the order of the file."""
    known, due, kept = definitions(tree), list(roots), set()
    seen: set[str] = set()
    while due:
        name = due.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        kept.add(id(known[name]))
        due += used_names(without_annotations(known[name]))
    return [statement for statement in tree.body if id(statement) in kept]


def slice_operator(text: str, roots: Iterable[str], beside: Mapping[str, str]) -> str:
    """Python text of what these names need. Annotations are left out, and so is what modules beside the file give.

    A `with` block of a context that comes from such a module is replaced by what stands in it.
    """
    tree = ast.parse(text)
    strangers = _names_from(tree, beside)
    statements = [s for s in needed(tree, roots) if not _is_import_of(s, beside)]
    kept = [_Plain(strangers).visit(without_annotations(statement)) for statement in statements]
    future = "from __future__ import annotations\n\n"
    return future + "\n\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in kept if s) + "\n"


def imported_modules(text: str) -> set[str]:
    """Top-level modules that it imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def without_annotations(node: ast.stmt) -> ast.stmt:
    copied = ast.parse(ast.unparse(node)).body[0]
    plain: ast.stmt = _Unannotated().visit(copied)
    return plain


def whole_constants(tree: ast.Module) -> dict[str, int]:
    """Module-level names that are bound once, to a whole number written out, or a tuple of one."""
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    for statement in tree.body:
        for name in _bound(statement):
            counts[name] = counts.get(name, 0) + 1
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                number = whole_number(
                    value.elts[0] if isinstance(value, ast.Tuple) and len(value.elts) == 1 else value
                )
                if number is not None:
                    found[name] = number
    return {name: value for name, value in found.items() if counts[name] == 1}


def _bound(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in aliases)
        case ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)
        case ast.Assign(targets=targets):
            yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _is_import_of(statement: ast.stmt, beside: Mapping[str, str]) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return f"{statement.module}.py" in beside or statement.module == "__future__"
    return isinstance(statement, ast.Import) and all(f"{a.name}.py" in beside for a in statement.names)


def _names_from(tree: ast.Module, beside: Mapping[str, str]) -> set[str]:
    return {name for s in tree.body if _is_import_of(s, beside) for name in _bound(s)}


class _Unannotated(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if node.value is None:
            return node  # a field of a class
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)


class _Plain(ast.NodeTransformer):
    """Takes `with` blocks of foreign contexts away."""

    def __init__(self, strangers: set[str]) -> None:
        self._strangers = strangers

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if all(used_names(item.context_expr) & self._strangers for item in node.items):
            return node.body
        return node
