"""Constraints: what the values of several knobs must be together, as expressions that are read and never run.

An expression compares knob names, numbers, texts in quotes, true and false: `ROWS * BLOCK <= 4096 * WARPS`,
`BLOCK % TILE == 0`, `ALGORITHM == 'whole' or STAGES in (1, 2)`. There are `+ - * / // %`, `& | ^ << >>` of whole
numbers, `**` with a whole number up to 16 written out, `max`, `min`, `abs`, comparisons (chained ones too), `in` and
`not in` over literals in brackets, `A if B else C`, `and`, `or`, `not` and brackets; no other calls, no indices or
attributes. `(A, B) == (8, 8)` and `(A, B) in ((4, 4), (2, 4))` compare several at once.

Numbers are reckoned in double precision. Whatever is divided by zero satisfies no comparison but `!=`, and so do bits
of what is no whole number.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hillclimb.harness.wording import choices

if TYPE_CHECKING:
    import numpy as np

KnobValue = bool | int | float | str

MAX_EXPRESSION_CHARS = 400
"""Characters of an expression; Python's own parser is quick up to there."""

MAX_NUMBER = 1e15
"""Beyond it double precision skips whole numbers."""

MAX_EXPONENT, MAX_SHIFT = 16, 13
"""Of a power and of a shift: 64 bits hold what is shifted."""

TRUTHS = {"true": True, "false": False}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_BITS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_FUNCTIONS = ("max", "min", "abs")
_EQUALITY: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MEMBERSHIP = (ast.In, ast.NotIn)
_ALLOWED = (
    "there are knobs, numbers, texts, + - * / // % ** & | ^ << >>, max, min, abs, comparisons, in (a, b), "
    "a if b else c, and, or, not"
)


class InvalidConstraint(ValueError):
    """An expression that is none; the message says what is wrong with it and what to do."""


def knob_names(expression: str) -> frozenset[str]:
    """The knobs that an expression is about. Raises InvalidConstraint."""
    tree = parse(expression)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)
    return frozenset(found) - TRUTHS.keys()


def check_constraint(expression: str, domains: Mapping[str, Sequence[Any] | None]) -> None:
    """Raises InvalidConstraint unless the expression compares what can be compared.

    `domains`: the values of every knob there is; None where any number of a range is one.
    """
    if not knob_names(expression):
        raise InvalidConstraint("it names no knob; write one as A * B <= 4096")
    for name in sorted(knob_names(expression) - domains.keys()):
        raise InvalidConstraint(f"there is no knob {name}; the knobs are {choices(name, domains)}")
    numeric = {name for name, values in domains.items() if values is None or all(map(_is_number, values))}
    _TypeChecker(numeric).is_numeric(parse(expression).body)


def is_satisfied(expression: str, values: Mapping[str, Any]) -> bool:
    """Whether one configuration satisfies an expression that was checked."""
    return bool(satisfied_mask(expression, {name: [values[name]] for name in knob_names(expression)})[0])


def satisfied_mask(expression: str, columns: Mapping[str, Iterable[Any]]) -> np.ndarray:
    """(configurations,) of bool: which satisfy an expression that was checked.

    `columns`: the values of each knob it is about, one a configuration.
    """
    import numpy as np

    arrays = {name: _column(columns[name]) for name in knob_names(expression)}
    count = max((len(array) for array in arrays.values()), default=1)
    with np.errstate(all="ignore"):
        found = evaluate(parse(expression).body, arrays)
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
def parse(expression: str) -> ast.Expression:
    """The tree of an expression. Raises InvalidConstraint for whatever the language of constraints does not have."""
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise InvalidConstraint(
            f"it has {len(expression)} characters, and at most {MAX_EXPRESSION_CHARS} may be; write it as several"
        )
    if "\\" in expression:
        raise InvalidConstraint("a backslash may not stand there; write texts without one")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        remedy = "write and, or" if "&&" in expression or "||" in expression else "write it as A * B <= 4096"
        raise InvalidConstraint(f"it is no expression ({said}); {remedy}") from None
    _refuse_strange(tree.body)
    return tree


def _refuse_strange(node: ast.expr) -> None:
    """Raises InvalidConstraint for whatever the language of constraints does not have."""
    match node:
        case ast.Constant(value=int() | float() as number) if not abs(number) <= MAX_NUMBER:
            raise InvalidConstraint(f"{ast.unparse(node)[:40]} is too large; a number has at most 15 digits")
        case ast.Name() | ast.Constant(value=bool() | int() | float() | str()):
            return
    for part in _parts(node):
        _refuse_strange(part)


def _parts(node: ast.expr) -> Sequence[ast.expr]:
    """What stands inside of it. Raises InvalidConstraint where the language does not have it."""
    match node:
        case ast.BoolOp(values=parts):
            return parts
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
            return [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC or type(op) in _BITS:
            return [left, right]
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent(right)
            return [left]
        case ast.IfExp(test=test, body=body, orelse=other):
            return [test, body, other]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            _check_count(name, arguments)
            return arguments
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compared(left, ops, others)
    raise InvalidConstraint(f"{ast.unparse(node)} may not stand there; {_ALLOWED}")


def exponent(node: ast.expr) -> int:
    """The exponent of a power. Raises InvalidConstraint unless it is a small whole number."""
    if isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= MAX_EXPONENT:
        return node.value
    raise InvalidConstraint(
        f"the exponent {ast.unparse(node)} may not stand there; write a whole number, 0 to {MAX_EXPONENT}"
    )


def _check_count(name: str, arguments: Sequence[ast.expr]) -> None:
    wanted = len(arguments) == 1 if name == "abs" else len(arguments) > 1
    if not wanted:
        remedy = "give one" if name == "abs" else "give two or more"
        raise InvalidConstraint(f"{name} has {len(arguments)} arguments; {remedy}")


def _compared(left: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr]) -> list[ast.expr]:
    """What comparisons compare, tuples and lists of literals opened."""
    found, present = list(elements(left)), left
    for op, other in zip(ops, others, strict=True):
        if isinstance(op, _MEMBERSHIP):
            for literal in literals(other):
                found += _pair_up(present, literal, op)
            continue
        if type(op) not in _EQUALITY and type(op) not in _ORDER:
            raise InvalidConstraint("'is' compares nothing here; write == or !=")
        found += _pair_up(present, other, op)
        present = other
    return found


def elements(node: ast.expr) -> Sequence[ast.expr]:
    """The parts of a tuple; of anything else the one that it is."""
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _pair_up(one: ast.expr, other: ast.expr, op: ast.cmpop) -> Sequence[ast.expr]:
    """The elements of `other`. Raises InvalidConstraint unless they are as many as those of `one`, unordered."""
    if isinstance(one, ast.Tuple) != isinstance(other, ast.Tuple) or len(elements(one)) != len(
        elements(other)
    ):
        raise InvalidConstraint(
            f"{ast.unparse(one)} and {ast.unparse(other)} differ in length; write (A, B) == (8, 8)"
        )
    if isinstance(one, ast.Tuple) and (type(op) in _ORDER or not one.elts):
        raise InvalidConstraint(f"{ast.unparse(one)} has no order; compare the parts one by one")
    return elements(other)


def literals(node: ast.expr) -> list[ast.expr]:
    """What stands in the brackets behind `in`. Raises InvalidConstraint where there are none."""
    if not isinstance(node, ast.Tuple | ast.List | ast.Set):
        raise InvalidConstraint(f"'in' wants literals in brackets, not {ast.unparse(node)}; write in (1, 2)")
    return node.elts


def evaluate(node: ast.expr, columns: Mapping[str, np.ndarray]) -> Any:
    """The value of an expression, element by element."""
    match node:
        case ast.Constant(value=value):
            return float(value) if isinstance(value, int) else value
        case ast.Name(id=name):
            return float(TRUTHS[name]) if name in TRUTHS else columns[name]
        case ast.BoolOp(op=op, values=parts):
            join = operator.and_ if isinstance(op, ast.And) else operator.or_
            return _fold(join, [_truth(evaluate(part, columns)) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _equal(_truth(evaluate(operand, columns)), False)
        case ast.UnaryOp(op=op, operand=operand):
            value = evaluate(operand, columns) * 1.0  # a truth is a number
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(evaluate(left, columns), exponent(right))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, [evaluate(part, columns) for part in arguments])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            chosen = (evaluate(part, columns) for part in (test, body, orelse))
            return _choose(*chosen)
        case ast.BinOp(left=left, op=op, right=right):
            return _calculate(type(op), evaluate(left, columns), evaluate(right, columns))
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compare(left, ops, others, columns)
    raise AssertionError(ast.dump(node))


def _compare(
    left: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr], columns: Mapping[str, np.ndarray]
) -> Any:
    found, present = [], left
    for op, other in zip(ops, others, strict=True):
        if isinstance(op, _MEMBERSHIP):
            among = _fold(
                operator.or_, [False, *(_is_equal(present, one, columns) for one in literals(other))]
            )
            found.append(among if isinstance(op, ast.In) else _equal(among, False))
            continue
        if type(op) in _EQUALITY:
            same = _is_equal(present, other, columns)
            found.append(same if isinstance(op, ast.Eq) else _equal(same, False))
        else:
            found.append(_ORDER[type(op)](evaluate(present, columns), evaluate(other, columns)))
        present = other
    return _fold(operator.and_, found)


def _is_equal(one: ast.expr, other: ast.expr, columns: Mapping[str, np.ndarray]) -> Any:
    """Of tuples, whether all elements are."""
    pairs = zip(elements(one), elements(other), strict=True)
    return _fold(operator.and_, [_equal(evaluate(a, columns), evaluate(b, columns)) for a, b in pairs])


def _fold(join: Callable[[Any, Any], Any], parts: Sequence[Any]) -> Any:
    found = parts[0]
    for part in parts[1:]:
        found = join(found, part)
    return found


def _truth(value: Any) -> Any:
    return value != 0


def _equal(one: Any, other: Any) -> Any:
    return one == other


def _call(name: str, values: Sequence[Any]) -> Any:
    import numpy as np

    if name == "abs":
        return np.abs(values[0] * 1.0)
    return _fold(np.maximum if name == "max" else np.minimum, [value * 1.0 for value in values])


def _choose(test: Any, one: Any, other: Any) -> Any:
    import numpy as np

    is_text = any(
        isinstance(value, str) or getattr(value, "dtype", None) == np.dtype(object) for value in (one, other)
    )
    if not is_text:
        return np.where(_truth(test), one, other)
    values = (np.asarray(value, dtype=object) for value in (one, other))
    return np.where(_truth(test), *values)


def _power(value: Any, exponent: int) -> Any:
    """With infinity where it is too large, where Python's own numbers raise."""
    import numpy as np

    return np.power(np.asarray(value, dtype=float), float(exponent))


def _calculate(op: type[ast.operator], one: Any, other: Any) -> Any:
    """Arithmetic with a nan where it divides by zero, and where bits of no whole number are asked for."""
    import numpy as np

    if op in _BITS:
        return _calculate_bits(op, np.asarray(one, dtype=float), np.asarray(other, dtype=float))
    one, other = one * 1.0, other * 1.0  # truths are numbers
    if op in (ast.Div, ast.FloorDiv, ast.Mod):
        divisor = np.asarray(other, dtype=float)
        other = np.where(divisor == 0, np.nan, divisor)
    return _ARITHMETIC[op](one, other)


def _calculate_bits(op: type[ast.operator], one: np.ndarray, other: np.ndarray) -> Any:
    import numpy as np

    is_shift = op in (ast.LShift, ast.RShift)
    fits = (np.trunc(one) == one) & (np.trunc(other) == other) & (np.abs(one) <= MAX_NUMBER)
    fits = fits & ((other >= 0) & (other <= MAX_SHIFT) if is_shift else np.abs(other) <= MAX_NUMBER)
    whole = (np.where(fits, value, 0).astype(np.int64) for value in (one, other))
    return np.where(fits, _BITS[op](*whole).astype(float), np.nan)


class _TypeChecker:
    """Whether each part of an expression is a number or a text, as far as that is known beforehand."""

    def __init__(self, numeric: set[str]) -> None:
        self._numeric = numeric

    def is_numeric(self, node: ast.expr) -> bool:
        """Whether it is a number (or a truth). Raises InvalidConstraint where a number is wanted and is none."""
        match node:
            case ast.Constant(value=value):
                return not isinstance(value, str)
            case ast.Name(id=name):
                return name in self._numeric or name in TRUTHS
            case ast.BoolOp(values=parts):
                return all(self._want(part) for part in parts)
            case ast.UnaryOp(operand=operand):
                return self._want(operand)
            case ast.BinOp(left=left, right=right):
                return all([self._want(left), self._want(right)])
            case ast.Call(args=arguments):
                return all(self._want(part) for part in arguments)
            case ast.IfExp(test=test, body=body, orelse=other):
                self._want(test)
                return all([self.is_numeric(body), self.is_numeric(other)])
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._check_comparison(left, ops, others)
        raise AssertionError(ast.dump(node))

    def _check_comparison(self, left: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr]) -> bool:
        for op, one, other in zip(ops, [left, *others], others, strict=False):
            if type(op) in _ORDER:
                self._want(one), self._want(other)
                continue
            compared = [one] if isinstance(op, _MEMBERSHIP) else [one, other]
            for part in (element for node in compared for element in elements(node)):
                self.is_numeric(part)
        return True

    def _want(self, node: ast.expr) -> bool:
        if not self.is_numeric(node):
            raise InvalidConstraint(f"{ast.unparse(node)} is no number; compare it with == or in")
        return True
