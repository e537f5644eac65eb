"""Translates a tuner's restrictions, Python expressions over its parameters, into constraints of knobs."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hillclimb.harness.knobs.constraints import MAX_EXPRESSION_CHARS, InvalidConstraint, check_constraint

C_OPERATORS = ((re.compile(r"&&"), " and "), (re.compile(r"\|\|"), " or "), (re.compile(r"!(?!=)"), " not "))


class Untranslatable(ValueError):
    """What a restriction says and no constraint can; the message says why."""


def translate(text: str, names: Mapping[str, str], domains: Mapping[str, Sequence[Any]]) -> list[str]:
    """Constraints that together say what a restriction says, which is split at its `and`.

    `names`: the tuner's parameters -> knobs; `domains`: the values of each knob. Raises Untranslatable.
    """
    body = _parse(text)
    parts = body.values if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And) else [body]
    return [_constraint(part, names, domains) for part in parts]


def knobs_of(constraint: str, knobs: Sequence[str]) -> list[str]:
    """Those that a constraint is about, in the knobs' order."""
    used = {node.id for node in ast.walk(ast.parse(constraint, mode="eval")) if isinstance(node, ast.Name)}
    return [knob for knob in knobs if knob in used]


def _parse(text: str) -> ast.expr:
    for pattern, word in C_OPERATORS:
        text = pattern.sub(word, text)
    try:
        body = ast.parse(" ".join(text.split()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Untranslatable(f"it is no expression ({error})") from None
    return body.body if isinstance(body, ast.Lambda) else body


def _constraint(node: ast.expr, names: Mapping[str, str], domains: Mapping[str, Sequence[Any]]) -> str:
    renamed = _Renamed(names).visit(node)
    _refuse_truths_as_numbers(renamed, is_truth=True)
    written = ast.unparse(ast.fix_missing_locations(renamed))
    text = re.sub(r"\bTrue\b", "true", re.sub(r"\bFalse\b", "false", written))
    if len(text) > MAX_EXPRESSION_CHARS:
        raise Untranslatable(f"it has {len(text)} characters, and {MAX_EXPRESSION_CHARS} are the most")
    try:
        check_constraint(text, domains)
    except InvalidConstraint as error:
        raise Untranslatable(str(error)) from None
    return text


class _Renamed(ast.NodeTransformer):
    """Parameters, also as p["name"] and p.name, become knobs."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._names:
            return ast.Name(self._names[node.id], ast.Load())
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(value=ast.Name(), slice=ast.Constant(value=str() as key)) if (
                key in self._names
            ):
                return ast.Name(self._names[key], ast.Load())
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.attr in self._names:
            return ast.Name(self._names[node.attr], ast.Load())
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        arguments = [self.visit(argument) for argument in node.args]
        if (
            function in ("max", "min")
            and len(arguments) == 1
            and isinstance(arguments[0], ast.Tuple | ast.List)
        ):
            arguments = list(arguments[0].elts)
        return ast.Call(node.func, arguments, node.keywords)


def _refuse_truths_as_numbers(node: ast.AST, *, is_truth: bool) -> None:
    """Python's `and` and `or` give one of their sides, a constraint's a truth: the two differ inside of arithmetic."""
    if isinstance(node, ast.BoolOp) and not is_truth:
        raise Untranslatable(f"{ast.unparse(node)} is used as a number, and is a truth here")
    inside_truth = isinstance(node, ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )
    for child in ast.iter_child_nodes(node):
        chosen = isinstance(node, ast.IfExp) and (child is node.test or is_truth)
        _refuse_truths_as_numbers(child, is_truth=(inside_truth and is_truth) or chosen or _is_not(node))


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
