"""All settings of finite knobs that satisfy their constraints, found by propagation.

Knobs that no constraint connects are solved apart, and their solutions multiplied. Connected ones are set one after the
other, depth first, in chunks of rows. Rows that cannot satisfy some constraint whatever the open knobs are set to are
dropped at once: by interval arithmetic, and by what a product or a divisor says of its factors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from hillclimb.harness.knobs.constraints import MAX_NUMBER, KnobValue, knob_names, parse, satisfied_mask
from hillclimb.harness.knobs.intervals import Open, possible_mask, range_of

if TYPE_CHECKING:
    import numpy as np


MAX_STEPS = 120_000_000
"""Rows that are looked at for one group of knobs; some tens of seconds."""

_SHORT_EXPRESSION = 60
"""Nodes of the tree of one."""
_CHUNK_ROWS = 1 << 17
_MAX_LOOKED_THROUGH = 2_000_000
_FEW_STEPS = 20_000_000
"""A few seconds: as long as an error message may take."""

Domains = Mapping[str, Sequence[KnobValue]]


class TooMany(Exception):
    """More solutions than were asked for, or too many rows to look at on the way."""


def connected_groups(names: Sequence[str], expressions: Sequence[str]) -> list[tuple[str, ...]]:
    """The knobs in groups that no expression connects, each in the order of `names`; groups by their first knob."""
    group = {name: name for name in names}
    for expression in expressions:
        joined = {group[name] for name in knob_names(expression)}
        first = min(joined, key=list(names).index)
        group = {name: first if of in joined else of for name, of in group.items()}
    return [tuple(name for name in names if group[name] == first) for first in dict.fromkeys(group.values())]


@dataclass(frozen=True)
class Solver:
    """Solves one group of knobs; `ranges` are those that are not finite, such as of a float knob."""

    domains: Domains
    expressions: tuple[str, ...]
    ranges: Mapping[str, Open] = field(default_factory=dict)
    max_steps: int = MAX_STEPS

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The knobs as they are set: first those of the constraint with the fewest combinations left."""
        order: list[str] = []
        open_sets = [knob_names(expression) & self.domains.keys() for expression in self.expressions]
        while any(open_sets):
            smallest = min((names for names in open_sets if names), key=self._combinations)
            order += [name for name in self.domains if name in smallest]
            open_sets = [names - smallest for names in open_sets]
        return (*order, *(name for name in self.domains if name not in order))

    def solutions(self, most: int) -> np.ndarray:
        """(solutions, knobs) of int16: indices into the domains, columns as `domains`, rows in lexicographic order.

        Raises TooMany where there are more than `most`, or where that cannot be told by `max_steps` rows.
        """
        import numpy as np

        found: list[np.ndarray] = []
        count, steps = 0, 0.0
        waiting = [(0, np.zeros((1, 0), dtype=np.int16))]
        while waiting:
            depth, rows = waiting.pop()
            if depth == len(self.order):
                found.append(rows)
                count += len(rows)
            elif len(rows):
                here, rest = self._split(rows, depth)
                waiting += [(depth, rest), (depth + 1, self.extended(here, depth))]
                steps += len(here) * len(self.domains[self.order[depth]]) * self._weights[depth]
            if count > most or steps > self.max_steps:
                raise TooMany
        columns = [self.order.index(name) for name in self.domains]
        rows = np.concatenate([np.zeros((0, len(columns)), dtype=np.int16), *found])[:, columns]
        return rows[np.lexsort(rows.T[::-1])] if columns else rows

    def prefixes(self, most: int) -> np.ndarray:
        """(rows, set knobs) of int16: all partial settings, as deep in `order` as at most `most` rows go."""
        import numpy as np

        rows = np.zeros((1, 0), dtype=np.int16)
        for depth, name in enumerate(self.order):
            if len(rows) * len(self.domains[name]) > most:
                break
            rows = self.extended(rows, depth)
        return rows

    def extended(self, rows: np.ndarray, depth: int) -> np.ndarray:
        """The rows with each value of the next knob, as far as constraints may still be satisfied."""
        import numpy as np

        name, known = self.order[depth], self.order[: depth + 1]
        turned = np.tile(np.arange(len(self.domains[name]), dtype=np.int16), len(rows))
        rows = np.column_stack([np.repeat(rows, len(self.domains[name]), axis=0), turned])
        for expression in self._due[depth]:
            rows = rows[self._mask(expression, rows, known)]
        return rows

    def _mask(self, expression: str, rows: np.ndarray, known: Sequence[str]) -> np.ndarray:
        about = knob_names(expression)
        columns = {name: self._pick(name, rows[:, i]) for i, name in enumerate(known) if name in about}
        if columns.keys() == about:
            return satisfied_mask(expression, columns)
        return possible_mask(
            expression, columns, {name: self._ranges[name] for name in about - columns.keys()}
        )

    def _pick(self, name: str, indices: np.ndarray) -> np.ndarray:
        picked: np.ndarray = self._values[name][indices]
        return picked

    def _split(self, rows: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        size = max(1, _CHUNK_ROWS // len(self.domains[self.order[depth]]))
        return rows[:size], rows[size:]

    def _combinations(self, names: frozenset[str]) -> float:
        product = 1.0
        for name in names:
            product *= len(self.domains[name])
        return product

    @cached_property
    def _values(self) -> dict[str, np.ndarray]:
        return {name: values_of(domain) for name, domain in self.domains.items()}

    @cached_property
    def _ranges(self) -> dict[str, Open]:
        return {**self.ranges, **{name: range_of(domain) for name, domain in self.domains.items()}}

    @cached_property
    def _weights(self) -> list[float]:
        """What looking at a row costs behind each knob of `order`, 1 for a short expression."""
        return [
            max(1.0, sum(len(list(ast.walk(parse(one)))) for one in due) / _SHORT_EXPRESSION)
            for due in self._due
        ]

    @cached_property
    def _due(self) -> list[list[str]]:
        """The expressions to ask behind each knob of `order`: all that are about it, whole ones last."""
        implied = [one for expression in self.expressions for one in self._implied(expression)]
        return [
            [one for one in (*implied, *self.expressions) if self._is_due(one, depth)]
            for depth in range(len(self.order))
        ]

    def _is_due(self, expression: str, depth: int) -> bool:
        return self.order[depth] in knob_names(expression)

    def _implied(self, expression: str) -> Iterator[str]:
        """What a product of whole numbers that is, or divides, a number says of its first factors: they divide it."""
        for node in _conjuncts(parse(expression).body):
            number, factors = _divided(node)
            if number and all(map(self._is_whole, factors)):
                names = [name for name in self.order if name in factors]
                yield from (f"{number} % ({' * '.join(names[:n])}) == 0" for n in range(1, len(names)))

    def _is_whole(self, name: str) -> bool:
        domain = self.domains.get(name, [0])
        return all(isinstance(value, int) and value != 0 for value in domain)


def nearest_setting(
    domains: Domains, expressions: Sequence[str], wished: Mapping[str, KnobValue]
) -> dict[str, KnobValue] | None:
    """A setting that satisfies every expression and differs from `wished` in as few knobs as any does.

    None where no setting does. Raises TooMany where there are too many to look through.
    """
    found: dict[str, KnobValue] = {}
    for group in connected_groups(list(domains), expressions):
        inside = {name: domains[name] for name in group}
        about = tuple(one for one in expressions if knob_names(one) <= inside.keys())
        rows = Solver(inside, about, max_steps=_FEW_STEPS).solutions(_MAX_LOOKED_THROUGH)
        if not len(rows):
            return None
        wanted = [list(inside[name]).index(wished[name]) for name in group]
        row = rows[(rows != wanted).sum(axis=1).argmin()]
        found |= {name: inside[name][index] for name, index in zip(group, row.tolist(), strict=True)}
    return found


def values_of(domain: Sequence[KnobValue]) -> np.ndarray:
    """(values,) of float where all are numbers, else of object."""
    import numpy as np

    numeric = all(isinstance(value, int | float) for value in domain)
    column = np.empty(len(domain), dtype=float if numeric else object)
    column[:] = domain
    return column


def _conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    """What must all hold."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for part in node.values:
            yield from _conjuncts(part)
    else:
        yield node


def _divided(node: ast.expr) -> tuple[int, list[str]]:
    """Of `product == number` and `number % product == 0` the number and the knobs of the product; else none."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        sides = node.left, node.comparators[0]
        for one, other in (sides, sides[::-1]):
            if number := _whole(other):
                return number, _factors(one)
            if _is_zero(other) and isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod):
                return _whole(one.left), _factors(one.right)
    return 0, []


def _whole(node: ast.expr) -> int:
    """The whole number above 0 that is written out there; else 0."""
    value = node.value if isinstance(node, ast.Constant) else 0
    return value if type(value) is int and 0 < value <= MAX_NUMBER else 0


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _factors(node: ast.expr) -> list[str]:
    """The knobs of a product of knobs; none where it is anything else, or one stands in it twice."""
    names, waiting = list[str](), [node]
    while waiting:
        match waiting.pop():
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                waiting += [left, right]
            case ast.Name(id=name):
                names.append(name)
            case _:
                return []
    return names if len(set(names)) == len(names) else []
