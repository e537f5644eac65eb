"""Lists of values as a tuner's file writes them in Python: read, never run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

MAX_VALUES = 10_000
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


def read_values(given: Any) -> list[Any]:
    """Of a list, or of text such as `[2**i for i in range(6)]` or `list(range(1, 9))`. Raises ValueError."""
    found = given
    if isinstance(given, str):
        try:
            found = _value(ast.parse(given.strip(), mode="eval").body, {})
        except (SyntaxError, TypeError, ZeroDivisionError, OverflowError, RecursionError) as error:
            raise ValueError(f"{given!r} is no list of values ({error})") from None
    if not isinstance(found, list | tuple | range):
        raise ValueError(f"{given!r} is no list of values")
    return list(found)


def whole_number(node: ast.expr) -> int | None:
    """The number that an expression of numbers written out is, if it is a whole one."""
    try:
        found = _value(node, {})
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return None
    return found if type(found) is int else None


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, names) for part in parts]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left, names), _value(right, names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _limited(_OPERATORS[type(op)](_operand(left, names), _operand(right, names)))
        case ast.Call(func=ast.Name(id="range"), args=arguments, keywords=[]):
            return _limited(range(*(_value(part, names) for part in arguments)))
        case ast.Call(func=ast.Name(id="list" | "sorted"), args=[only], keywords=[]):
            return list(_value(only, names))
        case ast.ListComp(
            elt=element, generators=[ast.comprehension(target=ast.Name(id=name), iter=over, ifs=[])]
        ):
            return [_value(element, {**names, name: value}) for value in _value(over, names)]
    raise ValueError(f"{ast.unparse(node)} is not read here; write the values out")


def _operand(node: ast.expr, names: Mapping[str, Any]) -> Any:
    value = _value(node, names)
    return list(value) if isinstance(value, range) else value


def _power(base: Any, exponent: Any) -> Any:
    if not (abs(base) <= 1e6 and abs(exponent) <= 64):
        raise ValueError(f"{base}**{exponent} is too large; write the values out")
    return base**exponent


def _limited(found: Any) -> Any:
    if isinstance(found, list | range) and len(found) > MAX_VALUES:
        raise ValueError(f"it has {len(found)} values, and {MAX_VALUES} are the most; write fewer")
    return found
