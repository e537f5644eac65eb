"""Constraints: what the values of several knobs must be together, as expressions that are read and never run.

An expression compares knob names, numbers, texts in quotes, true and false: `ROWS * BLOCK <= 4096 * WARPS`,
`BLOCK % TILE == 0`, `ALGORITHM == 'whole' or STAGES in (1, 2)`. There are `+ - * / // %`, comparisons (chained ones
too), `in` and `not in` over literals in brackets, `and`, `or`, `not` and brackets; no calls, indices or attributes.
Numbers are reckoned in double precision. Whatever is divided by zero satisfies no comparison but `!=`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

LONGEST = 400
"""Characters of an expression; Python's own parser is quick up to there."""

LARGEST = 1e15
"""Beyond it double precision skips whole numbers."""

_TRUTHS = {"true": True, "false": False}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_EQUALITY: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MEMBERSHIP = (ast.In, ast.NotIn)


class NoConstraint(ValueError):
    """An expression that is none; the message says what is wrong with it and what to do."""


def names(expression: str) -> frozenset[str]:
    """The knobs that an expression is about. Raises NoConstraint."""
    found = (node.id for node in ast.walk(_parse(expression)) if isinstance(node, ast.Name))
    return frozenset(found) - _TRUTHS.keys()


def check(expression: str, domains: Mapping[str, Sequence[Any] | None]) -> None:
    """Raises NoConstraint unless the expression compares what can be compared.

    `domains`: the values of every knob there is; None where any number of a range is one.
    """
    if not names(expression):
        raise NoConstraint("it names no knob; write one as A * B <= 4096")
    for name in sorted(names(expression) - domains.keys()):
        raise NoConstraint(f"there is no knob {name}; the knobs are {', '.join(domains)}")
    numeric = {name for name, values in domains.items() if values is None or all(map(_is_number, values))}
    _Kinds(numeric).visit(_parse(expression).body)


def holds(expression: str, values: Mapping[str, Any]) -> bool:
    """Whether one configuration satisfies an expression that was checked."""
    return bool(satisfied(expression, {name: [values[name]] for name in names(expression)})[0])


def satisfied(expression: str, columns: Mapping[str, Iterable[Any]]) -> np.ndarray:
    """(configurations,) of bool: which satisfy an expression that was checked.

    `columns`: the values of each knob it is about, one a configuration.
    """
    import numpy as np

    arrays = {name: _column(columns[name]) for name in names(expression)}
    count = max((len(array) for array in arrays.values()), default=1)
    with np.errstate(all="ignore"):
        found = _reckon(_parse(expression).body, arrays)
    return np.broadcast_to(np.asarray(found, dtype=bool), (count,))


def _column(values: Iterable[Any]) -> np.ndarray:
    import numpy as np

    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(float)
    listed = list(values)
    if all(map(_is_number, listed)):
        return np.array(listed, dtype=float)
    column = np.empty(len(listed), dtype=object)
    column[:] = listed
    return column


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


@lru_cache(maxsize=256)
def _parse(expression: str) -> ast.Expression:
    if len(expression) > LONGEST:
        raise NoConstraint(
            f"it has {len(expression)} characters, and at most {LONGEST} may be; write it as several"
        )
    if "\\" in expression:
        raise NoConstraint("a backslash may not stand there; write texts without one")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise NoConstraint(f"it is no expression ({said}); write it as A * B <= 4096") from None
    _refuse_strange(tree.body)
    return tree


def _refuse_strange(node: ast.expr) -> None:
    """Raises NoConstraint for whatever the language of constraints does not have."""
    match node:
        case ast.BoolOp(values=parts):
            inside: Sequence[ast.expr] = parts
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            inside = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            inside = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=others):
            inside = [left, *_compared(ops, others)]
        case ast.Constant(value=int() | float() as number) if not abs(number) <= LARGEST:
            raise NoConstraint(f"{ast.unparse(node)[:40]} is too large; a number has at most 15 digits")
        case ast.Name() | ast.Constant(value=bool() | int() | float() | str()):
            inside = []
        case _:
            raise NoConstraint(
                f"{ast.unparse(node)} may not stand there; there are knobs, numbers, texts, + - * / // %, comparisons, "
                "in (a, b), and, or, not"
            )
    for part in inside:
        _refuse_strange(part)


def _compared(ops: Sequence[ast.cmpop], others: Sequence[ast.expr]) -> list[ast.expr]:
    """What stands on the right of comparisons, lists of literals opened."""
    found: list[ast.expr] = []
    for op, other in zip(ops, others, strict=True):
        if isinstance(op, _MEMBERSHIP):
            found += _literals(other)
        elif type(op) in _EQUALITY or type(op) in _ORDER:
            found.append(other)
        else:
            raise NoConstraint("'is' compares nothing here; write == or !=")
    return found


def _literals(node: ast.expr) -> list[ast.expr]:
    if not isinstance(node, ast.Tuple | ast.List | ast.Set):
        raise NoConstraint(f"'in' wants literals in brackets, not {ast.unparse(node)}; write in (1, 2)")
    return node.elts


def _reckon(node: ast.expr, columns: Mapping[str, np.ndarray]) -> Any:
    """The value of an expression, element by element."""
    match node:
        case ast.Constant(value=value):
            return float(value) if isinstance(value, int) else value
        case ast.Name(id=name):
            return float(_TRUTHS[name]) if name in _TRUTHS else columns[name]
        case ast.BoolOp(op=op, values=parts):
            join = operator.and_ if isinstance(op, ast.And) else operator.or_
            return _fold(join, [_truth(_reckon(part, columns)) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _equal(_truth(_reckon(operand, columns)), False)
        case ast.UnaryOp(operand=operand):
            return -_reckon(operand, columns)
        case ast.BinOp(left=left, op=op, right=right):
            return _calculate(type(op), _reckon(left, columns), _reckon(right, columns))
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compare(left, ops, others, columns)
    raise AssertionError(ast.dump(node))


def _compare(
    left: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr], columns: Mapping[str, np.ndarray]
) -> Any:
    found, present = [], _reckon(left, columns)
    for op, other in zip(ops, others, strict=True):
        if isinstance(op, _MEMBERSHIP):
            among = _fold(
                operator.or_, [False, *(_equal(present, _reckon(one, columns)) for one in _literals(other))]
            )
            found.append(among if isinstance(op, ast.In) else _equal(among, False))
            continue
        following = _reckon(other, columns)
        found.append((_EQUALITY | _ORDER)[type(op)](present, following))
        present = following
    return _fold(operator.and_, found)


def _fold(join: Callable[[Any, Any], Any], parts: Sequence[Any]) -> Any:
    found = parts[0]
    for part in parts[1:]:
        found = join(found, part)
    return found


def _truth(value: Any) -> Any:
    return value != 0


def _equal(one: Any, other: Any) -> Any:
    return one == other


def _calculate(op: type[ast.operator], one: Any, other: Any) -> Any:
    """Arithmetic with a nan where it divides by zero."""
    import numpy as np

    if op in (ast.Div, ast.FloorDiv, ast.Mod):
        divisor = np.asarray(other, dtype=float)
        other = np.where(divisor == 0, np.nan, divisor)
    return _ARITHMETIC[op](one, other)


class _Kinds:
    """Whether each part of an expression is a number or a text, as far as that is known beforehand."""

    def __init__(self, numeric: set[str]) -> None:
        self._numeric = numeric

    def visit(self, node: ast.expr) -> bool:
        """Whether it is a number (or a truth). Raises NoConstraint where a number is wanted and is none."""
        match node:
            case ast.Constant(value=value):
                return not isinstance(value, str)
            case ast.Name(id=name):
                return name in self._numeric or name in _TRUTHS
            case ast.BoolOp(values=parts):
                return all(self._want(part) for part in parts)
            case ast.UnaryOp(operand=operand):
                return self._want(operand)
            case ast.BinOp(left=left, right=right):
                return all([self._want(left), self._want(right)])
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._check_comparison(left, ops, others)
        raise AssertionError(ast.dump(node))

    def _check_comparison(self, left: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr]) -> bool:
        for op, one, other in zip(ops, [left, *others], others, strict=False):
            if type(op) in _ORDER:
                self._want(one), self._want(other)
            elif not isinstance(op, _MEMBERSHIP):
                self.visit(one), self.visit(other)
            else:
                self.visit(one)
        return True

    def _want(self, node: ast.expr) -> bool:
        if not self.visit(node):
            raise NoConstraint(f"{ast.unparse(node)} is no number; compare it with == or in")
        return True
