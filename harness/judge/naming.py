"""What the names in workspace source stand for, read off its imports and plain assignments; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import PurePath

MOST_HOPS = 16
"""Own modules a name may be handed through; a ring of them ends there."""

MOST_PARTS = 32
"""Attributes in a chain that is followed; no library is nested as deeply."""


SIGNS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)

REMEMBERED = 256
"""Files whose reading is kept: most of a workspace is what it was when it was read last."""


@lru_cache(maxsize=REMEMBERED)
def parse(source: bytes) -> ast.Module:
    """Raises as ast.parse does."""
    return ast.parse(source)


@lru_cache(maxsize=REMEMBERED)
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All that ast.walk comes to, which is slow, but for signs that name nothing: half of a kernel's nodes."""
    return tuple(node for node in ast.walk(tree) if not isinstance(node, SIGNS))


class Names:
    """The names of one file as dotted paths: `F` is torch.nn.functional after `import torch.nn.functional as F`."""

    def __init__(self, tree: ast.AST, others: Mapping[str, Names]) -> None:
        """`others` are the workspace's own modules by name, in which names are followed on; it may still grow."""
        self._others = others
        self._paths: dict[str, str] = {}
        for node in nodes_of(tree):
            self._paths.update(imported(node))
        self._aliases = [found for node in nodes_of(tree) if (found := _alias(node))]
        for _ in range(2):
            for name, value in self._aliases:
                if path := self._dotted(value):
                    self._paths.setdefault(name, path)

    def path(self, node: ast.AST) -> str | None:
        """torch.cuda.stream, whatever torch is called here; None where no import is behind the name."""
        path = self._dotted(node)
        for _ in range(MOST_HOPS):
            onward = self._follow(path) if path else None
            if onward is None:
                break
            path = onward
        return path

    def uses(self, tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
        """Every longest chain of attributes that starts at an import, with its path; renamings are no use."""
        parts = {id(part) for node in nodes_of(tree) if (part := base_of(node)) is not None}
        passed = parts | {id(value) for _, value in self._aliases if isinstance(value, ast.Name)}
        for node in nodes_of(tree):
            if not isinstance(node, ast.expr) or id(node) in passed or _binds(node):
                continue
            if path := self.path(node):
                yield node, path

    def _dotted(self, node: ast.AST) -> str | None:
        parts: list[str] = []
        base: ast.AST | None = node
        while base is not None and not isinstance(base, ast.Name) and len(parts) < MOST_PARTS:
            parts.append(attribute_of(base) or "")
            base = base_of(base)
        path = self._paths.get(base.id) if isinstance(base, ast.Name) else None
        return ".".join([path, *reversed(parts)]) if path else None

    def _follow(self, path: str) -> str | None:
        """The same thing one own module further on."""
        parts = path.split(".")
        for end in range(1, len(parts)):
            other = self._others.get(".".join(parts[:end]))
            if other is not None and parts[end] in other._paths:
                return ".".join([other._paths[parts[end]], *parts[end + 1 :]])
        return None


def module_name(path: PurePath) -> str:
    """kernels.tile for kernels/tile.py, kernels for kernels/__init__.py."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST) -> dict[str, str]:
    """Names an import binds, and what they stand for."""
    if isinstance(node, ast.Import):
        return {
            a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
        }
    if isinstance(node, ast.ImportFrom):
        prefix = f"{node.module}." if node.module else ""
        return {a.asname or a.name: f"{prefix}{a.name}" for a in node.names}
    return {}


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
