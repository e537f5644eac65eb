"""What the names in workspace source stand for, read off its imports and plain assignments; nothing is imported."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import PurePath

MAX_HOPS = 16
"""Own modules a name may be handed through; a ring of them ends there."""

MAX_PARTS = 32
"""Attributes in a chain that is followed; no library is nested as deeply."""


MAX_SCOPES = 12
"""Functions and classes within each other."""

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
SIGNS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)

MAX_FILES_REMEMBERED = 256
"""Files whose reading is kept: most of a workspace is what it was when it was read last."""


@lru_cache(maxsize=MAX_FILES_REMEMBERED)
def parse(source: bytes) -> ast.Module:
    """Raises as ast.parse does."""
    return ast.parse(source)


@lru_cache(maxsize=MAX_FILES_REMEMBERED)
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All that ast.walk comes to, which is slow, but for signs that name nothing: half of a kernel's nodes."""
    return tuple(node for node in ast.walk(tree) if not isinstance(node, SIGNS))


def require_shallow(tree: ast.AST) -> None:
    """Raises ValueError for functions and classes so deep within each other that reading them would take long."""
    left: list[tuple[ast.AST, int]] = [(tree, 0)]
    while left:
        node, depth = left.pop()
        depth += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)
        if depth > MAX_SCOPES:
            raise ValueError(f"more than {MAX_SCOPES} functions and classes lie within each other")
        left.extend((inner, depth) for inner in ast.iter_child_nodes(node))


class DottedNames:
    """The names of one file as dotted paths: `F` is torch.nn.functional after `import torch.nn.functional as F`.

    A name is read as one thing in the whole file; `ambiguous` are those that stand for several.
    """

    def __init__(
        self, tree: ast.AST, others: Mapping[str, DottedNames], package: str = "", module: str = ""
    ) -> None:
        """`others` are the workspace's own modules by name, in which names are followed on; it may still grow.
        `package` is the one that the file lies in, for its relative imports; `module` is the file's own name."""
        self._others, self.package, self.module = others, package, module
        self._paths: dict[str, str] = {}
        self.ambiguous: list[tuple[int, str, str, str]] = []
        """(line, name, what it stands for, what else)."""
        self.too_long: list[tuple[int, str]] = []
        """(line, name) of chains that were not followed to their end."""
        self._told: set[tuple[str, str]] = set()
        in_classes = {
            id(node)
            for made in nodes_of(tree)
            if isinstance(made, ast.ClassDef)
            for node in in_scope_of(made)
        }
        for node in nodes_of(tree):
            for name, path in imported(node, package).items():
                self._bind(node, name, path)
        self._aliases = [
            (node, *found)
            for node in nodes_of(tree)
            if id(node) not in in_classes and (found := _alias(node))
        ]
        self._bind_aliases()
        self.classes, self._rebound = self._other_bindings(tree)
        defined = {node.name for node in nodes_of(tree) if isinstance(node, DEFINITIONS)}
        stored = {node.id for node in nodes_of(tree) if isinstance(node, ast.Name) and _binds(node)}
        self._variables = stored - defined - self._paths.keys()

    def _other_bindings(self, tree: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
        """Names that class statements alone bind, and those that something else than an import binds as well."""
        followed = {
            id(target)
            for node, _, value in self._aliases
            if self._dotted(value) is not None
            for target in (*getattr(node, "targets", ()), getattr(node, "target", None))
        }
        classes: set[str] = set()
        others: set[str] = set()
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                classes.add(node.name)
            elif id(node) not in followed and not isinstance(node, ast.Import | ast.ImportFrom):
                others.update(bound_by(node))
        return frozenset(classes - others), frozenset((classes | others) & self._paths.keys())

    def is_class(self, path: str) -> bool:
        """False for a name of the workspace's own modules that is bound otherwise than by class statements."""
        module, _, name = path.rpartition(".")
        if path.split(".")[0] not in {module.split(".")[0] for module in self._others}:
            return True
        return module in self._others and name in self._others[module].classes

    def may_set(self, path: str) -> bool:
        """Whether it is a variable of one of the workspace's own modules, and nothing that a reading goes by."""
        module, _, name = path.rpartition(".")
        return module in self._others and name in self._others[module]._variables

    def known(self, node: ast.AST) -> str | None:
        """As `path`, but None where the first name may stand for something that was never imported."""
        return None if _first_name(node) in self._rebound else self.path(node)

    def _bind_aliases(self) -> None:
        """A name may stand for one that is bound further down: it is read again once that is."""
        waiting: dict[str, list[tuple[ast.AST, str, ast.expr]]] = {}
        for alias in self._aliases:
            waiting.setdefault(_first_name(alias[2]) or "", []).append(alias)
        left = deque(self._aliases)
        while left:
            alias = left.popleft()
            if self._bind_alias(*alias):
                left.extend(waiting.get(alias[1], ()))

    def _bind(self, node: ast.AST, name: str, path: str) -> bool:
        """Whether it is the first that the name stands for."""
        if name not in self._paths:
            self._paths[name] = path
            return True
        if path != self._paths[name] and (name, path) not in self._told:
            self._told.add((name, path))
            self.ambiguous.append((getattr(node, "lineno", 0), name, self._paths[name], path))
        return False

    def _bind_alias(self, node: ast.AST, name: str, value: ast.expr) -> bool:
        """A function that is chosen among several is read where it is named; only a module hides what is used."""
        path = self._dotted(value)
        if path is None or (name in self._paths and not isinstance(value, ast.Name)):
            return False
        return self._bind(node, name, path)

    @property
    def roots(self) -> set[str]:
        """Modules of which a name is bound."""
        return {
            path.split(".")[0] for path in (*self._paths.values(), *(other for *_, other in self.ambiguous))
        }

    def follow(self, path: str, line: int = 0) -> str:
        """What a path stands for, through the workspace's own modules; one that imports from itself has a value."""
        for _ in range(MAX_HOPS):
            onward = self._follow(path)
            if onward is None or onward == path:
                return path
            path = onward
        self.too_long.append((line, path))
        return path

    def path(self, node: ast.AST) -> str | None:
        """torch.cuda.stream, whatever torch is called here; None where no import is behind the name."""
        path = self._dotted(node)
        return self.follow(path) if path else None

    def uses(self, tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
        """Every longest chain of attributes that starts at an import, with its path; renamings are no use."""
        parts = {id(part) for node in nodes_of(tree) if (part := base_of(node)) is not None}
        renamed = (value for node, _, value in self._aliases if not isinstance(node, ast.NamedExpr))
        passed = parts | {id(value) for value in renamed if isinstance(value, ast.Name)}
        passed |= {id(asked) for node in nodes_of(tree) if (asked := _asked_about(node)) is not None}
        for node in nodes_of(tree):
            if not isinstance(node, ast.expr) or id(node) in passed or _binds(node):
                continue
            if path := self.path(node):
                yield node, path
                yield from ((node, self.follow(other)) for other in self._other_meanings(node))

    def _dotted(self, node: ast.AST) -> str | None:
        parts: list[str] = []
        base: ast.AST | None = node
        while base is not None and not isinstance(base, ast.Name) and len(parts) < MAX_PARTS:
            parts.append(attribute_of(base) or "")
            base = base_of(base)
        if len(parts) == MAX_PARTS and base_of(node) is not None:
            self.too_long.append((getattr(node, "lineno", 0), parts[-1]))
        path = self._paths.get(base.id) if isinstance(base, ast.Name) else None
        return ".".join([path, *reversed(parts)]) if path else None

    def meanings(self, tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
        """Every name and chain of attributes that is read, with each path it may stand for; renamings included."""
        for node in nodes_of(tree):
            if isinstance(node, ast.Name | ast.Attribute) and not _binds(node) and (path := self.path(node)):
                yield node, path
                yield from ((node, self.follow(other)) for other in self._other_meanings(node))

    def _other_meanings(self, node: ast.AST) -> Iterator[str]:
        """Paths of a chain whose first name is bound more than once."""
        first = _first_name(node)
        if first is not None and (path := self._dotted(node)):
            rest = path.removeprefix(self._paths[first])
            yield from (f"{other}{rest}" for _, name, _, other in self.ambiguous if name == first)

    def _follow(self, path: str) -> str | None:
        """The same thing one own module further on."""
        parts = path.split(".")
        for end in range(1, len(parts)):
            other = self._others.get(".".join(parts[:end]))
            if other is not None and parts[end] in other._paths:
                onward = ".".join([other._paths[parts[end]], *parts[end + 1 :]])
                if onward != path:  # a package names its own module as others do
                    return onward
        return None


def package_name(path: PurePath) -> str:
    """kernels for kernels/tile.py and for kernels/__init__.py; nothing at the top."""
    return ".".join(path.parts[:-1])


def module_name(path: PurePath) -> str:
    """kernels.tile for kernels/tile.py, kernels for kernels/__init__.py."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST, package: str = "") -> dict[str, str]:
    """Names an import binds, and what they stand for; relative ones as seen from the package."""
    if isinstance(node, ast.Import):
        return {
            a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
        }
    if isinstance(node, ast.ImportFrom):
        module = relative_module(node, package) if node.level else node.module
        return {a.asname or a.name: f"{module}.{a.name}" if module else a.name for a in node.names}
    return {}


def bound_by(node: ast.AST) -> Iterator[str]:
    """Names that a node binds in whatever scope it stands, by assignment, import, definition or pattern."""
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


def relative_module(node: ast.ImportFrom, package: str) -> str | None:
    """kernels.tile for `from .tile import x` in the package kernels; None above the top."""
    parts = package.split(".") if package else []
    if node.level > len(parts):
        return None
    above = parts[: len(parts) - node.level + 1]
    return ".".join([*above, *(node.module or "").split(".")]).strip(".")


def base_of(node: ast.AST) -> ast.expr | None:
    """BASE in `BASE.name` and in getattr(BASE, "name", ...)."""
    match node:
        case ast.Attribute(value=base):
            return base
        case ast.Call(func=ast.Name(id="getattr"), args=[base, ast.Constant(value=str()), *_]):
            return base
    return None


def attribute_of(node: ast.AST) -> str | None:
    """NAME in `base.NAME` and in getattr(base, "NAME", ...)."""
    match node:
        case ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name
    return None


def in_scope_of(made: ast.ClassDef) -> Iterator[ast.AST]:
    """What runs as the class's body, however deep in statements, but for the bodies of functions in it."""
    left: list[ast.AST] = list(made.body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            left.extend(ast.iter_child_nodes(node))


def _first_name(node: ast.AST) -> str | None:
    """NAME in `NAME.a.b`."""
    while (inner := base_of(node)) is not None:
        node = inner
    return node.id if isinstance(node, ast.Name) else None


def _asked_about(node: ast.AST) -> ast.expr | None:
    """THING in hasattr(THING, "name"), which hands it on to nobody."""
    match node:
        case ast.Call(func=ast.Name(id="hasattr"), args=[thing, ast.Constant(value=str())]):
            return thing
    return None


def _binds(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)


def _alias(node: ast.AST) -> tuple[str, ast.expr] | None:
    """`name = value`, where value is a name or a chain of attributes."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return name, value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            return name, value
    return None
