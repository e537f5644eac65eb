"""Constraints with some knobs left open: whether any of their values could satisfy an expression.

Interval arithmetic over a tree of an expression (R. E. Moore, Interval Analysis, 1966), row by row: a known knob is a
point, an open one the range of its domain. An answer of "no" is certain; "maybe" is all that else is said. Bounds are
reckoned in double precision as `hillclimb.harness.knobs.constraints` reckons values: those operations are monotone.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from hillclimb.harness.knobs.constraints import (
    TRUTHS,
    elements,
    evaluate,
    exponent,
    literals,
    parse,
)

if TYPE_CHECKING:
    import numpy as np

_POWER_SLACK = 1e-12
"""Relative; a power need not be monotone in its last bits."""


@dataclass(frozen=True)
class Bounds:
    """What a number may be in each row, both ends included; a truth is 0 or 1."""

    low: Any
    high: Any
    may_be_nan: Any = False


@dataclass(frozen=True)
class TextRange:
    """What a text, or a value of mixed type, is in each row; None where any of its domain may stand."""

    values: Any = None


Open = Bounds | TextRange
"""The range of a knob, or of a part of an expression."""


def range_of(values: Sequence[Any]) -> Open:
    """What a knob of a finite domain may be."""
    if all(isinstance(value, int | float) for value in values):
        return Bounds(float(min(values)), float(max(values)))
    return TextRange()


def possible_mask(expression: str, known: Mapping[str, np.ndarray], ranges: Mapping[str, Open]) -> np.ndarray:
    """(rows,) of bool: False where no values of the open knobs satisfy an expression that was checked.

    `known`: the values of the knobs that are, one a row: of float, or of object where they are not all numbers.
    `ranges`: what the others may be.
    """
    import numpy as np

    columns = {name: _point(column) for name, column in known.items()}
    count = max((len(column) for column in known.values()), default=1)
    with np.errstate(all="ignore"):
        found = _truth(_bound(parse(expression).body, {**ranges, **columns}))
    return np.broadcast_to(np.asarray(found.high) > 0, (count,))


def _point(column: np.ndarray) -> Open:
    return TextRange(column) if column.dtype == object else Bounds(column, column)


def _bound(node: ast.expr, knobs: Mapping[str, Open]) -> Open:
    match node:
        case ast.Constant(value=str() as text):
            return TextRange(text)
        case ast.Constant(value=bool() | int() | float() as number):
            return Bounds(float(number), float(number))
        case ast.Name(id=name):
            return knobs[name] if name not in TRUTHS else Bounds(float(TRUTHS[name]), float(TRUTHS[name]))
        case ast.BoolOp(op=op, values=parts):
            return _join(isinstance(op, ast.And), [_truth(_bound(part, knobs)) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _not(_truth(_bound(operand, knobs)))
        case ast.UnaryOp(op=op, operand=operand):
            part = _number(_bound(operand, knobs))
            return Bounds(-part.high, -part.low, part.may_be_nan) if isinstance(op, ast.USub) else part
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_number(_bound(left, knobs)), exponent(right))
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(node, op, _number(_bound(left, knobs)), _number(_bound(right, knobs)))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, [_number(_bound(part, knobs)) for part in arguments])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choose(_truth(_bound(test, knobs)), _bound(body, knobs), _bound(orelse, knobs))
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compare(left, ops, others, knobs)
    raise AssertionError(ast.dump(node))


def _number(value: Open) -> Bounds:
    return value if isinstance(value, Bounds) else _anything()


def _anything() -> Bounds:
    import numpy as np

    return Bounds(-np.inf, np.inf, True)


def _truth(value: Open) -> Bounds:
    """Of a number whether it is not 0; nan is not."""
    import numpy as np

    if isinstance(value, TextRange):
        return Bounds(0.0, 1.0)
    may_be_zero = (value.low <= 0) & (value.high >= 0)
    is_zero = (value.low == 0) & (value.high == 0) & np.logical_not(value.may_be_nan)
    return Bounds(np.where(may_be_zero, 0.0, 1.0), np.where(is_zero, 0.0, 1.0))


def _not(truth: Bounds) -> Bounds:
    return Bounds(1.0 - truth.high, 1.0 - truth.low)


def _join(is_and: bool, truths: Sequence[Bounds]) -> Bounds:
    import numpy as np

    join = np.minimum if is_and else np.maximum
    return Bounds(reduce(join, (t.low for t in truths)), reduce(join, (t.high for t in truths)))


def _finite(low: Any, high: Any, may_be_nan: Any) -> Bounds:
    """Whatever overflows may be anything: what is reckoned with it may be nan."""
    import numpy as np

    lost = ~(np.isfinite(low) & np.isfinite(high))
    return Bounds(
        np.where(lost, -np.inf, low), np.where(lost, np.inf, high), np.asarray(may_be_nan, dtype=bool) | lost
    )


def _power(value: Bounds, power: int) -> Bounds:
    import numpy as np

    ends = [np.asarray(end, dtype=float) for end in (value.low, value.high)]
    one, other = (np.power(end, float(power)) for end in ends)
    low, high = np.minimum(one, other), np.maximum(one, other)
    if power and power % 2 == 0:
        low = np.where((ends[0] <= 0) & (ends[1] >= 0), 0.0, low)
    slack = _POWER_SLACK * np.maximum(np.abs(low), np.abs(high))
    exact = (ends[0] == ends[1]) | (slack < 1)  # whole numbers that double precision holds
    return _finite(np.where(exact, low, low - slack), np.where(exact, high, high + slack), value.may_be_nan)


def _arithmetic(node: ast.expr, op: ast.operator, one: Bounds, other: Bounds) -> Bounds:
    import numpy as np

    nan = np.logical_or(one.may_be_nan, other.may_be_nan)
    match op:
        case ast.Add():
            return _finite(one.low + other.low, one.high + other.high, nan)
        case ast.Sub():
            return _finite(one.low - other.high, one.high - other.low, nan)
        case ast.Mult():
            return _corners(operator.mul, one, other, nan)
        case ast.Div() | ast.FloorDiv():
            divide = np.divide if isinstance(op, ast.Div) else np.floor_divide
            by_zero = (other.low <= 0) & (other.high >= 0)
            return _corners(lambda a, b: np.where(by_zero, np.nan, divide(a, b)), one, other, nan)
        case ast.Mod():
            return _modulo(one, other, nan)
    return _exact(node, one, other, nan)


def _corners(reckon: Callable[[Any, Any], Any], one: Bounds, other: Bounds, may_be_nan: Any) -> Bounds:
    """Of an operation that is monotone in each operand: the extremes lie at the ends."""
    import numpy as np

    found = [reckon(a * 1.0, b * 1.0) for a in (one.low, one.high) for b in (other.low, other.high)]
    return _finite(reduce(np.minimum, found), reduce(np.maximum, found), may_be_nan)


def _modulo(one: Bounds, other: Bounds, may_be_nan: Any) -> Bounds:
    """The remainder has the sign of a divisor that is not 0 and is smaller; below the divisor it is the number."""
    import numpy as np

    above, below = other.low > 0, other.high < 0
    low = np.where(above, 0.0, np.where(below, other.low, np.nan))
    high = np.where(above, other.high, np.where(below, 0.0, np.nan))
    same = above & (one.low >= 0) & (one.high < other.low)
    is_point = (one.low == one.high) & (other.low == other.high) & (other.low != 0)
    exact = np.mod(one.low, np.where(is_point, other.low, 1.0))
    return _finite(
        np.where(is_point, exact, np.where(same, one.low, low)),
        np.where(is_point, exact, np.where(same, one.high, high)),
        may_be_nan,
    )


def _exact(node: ast.expr, one: Bounds, other: Bounds, may_be_nan: Any) -> Bounds:
    """Bits of points; of ranges they may be anything."""
    import numpy as np

    assert isinstance(node, ast.BinOp)
    is_point = (one.low == one.high) & (other.low == other.high) & np.logical_not(may_be_nan)
    names = ast.BinOp(ast.Name("one"), node.op, ast.Name("other"))
    found = evaluate(names, {"one": np.asarray(one.low), "other": np.asarray(other.low)})
    value = np.where(is_point, found, np.nan)
    return _finite(value, value, False)


def _call(name: str, values: Sequence[Bounds]) -> Bounds:
    import numpy as np

    nan = reduce(np.logical_or, (value.may_be_nan for value in values))
    if name == "abs":
        [value] = values
        ends = np.abs(value.low), np.abs(value.high)
        holds_zero = (value.low <= 0) & (value.high >= 0)
        return Bounds(np.where(holds_zero, 0.0, np.minimum(*ends)), np.maximum(*ends), nan)
    pick = np.maximum if name == "max" else np.minimum
    return Bounds(reduce(pick, (v.low for v in values)), reduce(pick, (v.high for v in values)), nan)


def _choose(test: Bounds, one: Open, other: Open) -> Open:
    import numpy as np

    if isinstance(one, TextRange) or isinstance(other, TextRange):
        return TextRange()
    always, never = test.low > 0, test.high <= 0
    ends = (
        np.where(always, one_end, np.where(never, other_end, pick(one_end, other_end)))
        for one_end, other_end, pick in (
            (one.low, other.low, np.minimum),
            (one.high, other.high, np.maximum),
            (one.may_be_nan, other.may_be_nan, np.logical_or),
        )
    )
    return Bounds(*ends)


def _compare(
    left: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr], knobs: Mapping[str, Open]
) -> Bounds:
    found, present = [], left
    for op, other in zip(ops, others, strict=True):
        if isinstance(op, ast.In | ast.NotIn):
            among = _join(False, [_equal(present, one, knobs) for one in literals(other)] or [_never()])
            found.append(among if isinstance(op, ast.In) else _not(among))
            continue
        if isinstance(op, ast.Eq | ast.NotEq):
            same = _equal(present, other, knobs)
            found.append(same if isinstance(op, ast.Eq) else _not(same))
        else:
            found.append(_order(op, _number(_bound(present, knobs)), _number(_bound(other, knobs))))
        present = other
    return _join(True, found)


def _never() -> Bounds:
    return Bounds(0.0, 0.0)


def _equal(one: ast.expr, other: ast.expr, knobs: Mapping[str, Open]) -> Bounds:
    """Of tuples, whether all elements are."""
    pairs = zip(elements(one), elements(other), strict=True)
    return _join(True, [_is_same(_bound(a, knobs), _bound(b, knobs)) for a, b in pairs])


def _is_same(one: Open, other: Open) -> Bounds:
    import numpy as np

    if isinstance(one, Bounds) and isinstance(other, Bounds):
        nan = np.logical_or(one.may_be_nan, other.may_be_nan)
        same = (one.low == one.high) & (other.low == other.high) & (one.low == other.low) & ~nan
        overlap = (one.low <= other.high) & (other.low <= one.high)
        return Bounds(np.where(same, 1.0, 0.0), np.where(overlap, 1.0, 0.0))
    known = [
        value.values for value in (one, other) if isinstance(value, TextRange) and value.values is not None
    ]
    if len(known) < 2:
        return Bounds(0.0, 1.0)
    equal = np.asarray(_objects(known[0]) == _objects(known[1]), dtype=float)
    return Bounds(equal, equal)


def _objects(values: Any) -> np.ndarray:
    import numpy as np

    return np.asarray(values, dtype=object)


def _order(op: ast.cmpop, one: Bounds, other: Bounds) -> Bounds:
    import numpy as np

    if isinstance(op, ast.Gt | ast.GtE):
        one, other = other, one
    less = operator.lt if isinstance(op, ast.Lt | ast.Gt) else operator.le
    nan = np.logical_or(one.may_be_nan, other.may_be_nan)
    always = less(one.high, other.low) & ~nan
    return Bounds(np.where(always, 1.0, 0.0), np.where(less(one.low, other.high), 1.0, 0.0))
