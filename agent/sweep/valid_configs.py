"""The valid list: every configuration of a finite space that satisfies the constraints, as rows of small numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from hillclimb.harness.case.constraints import knob_names, satisfied_mask
from hillclimb.harness.case.knobs import Knobs, KnobValue, all_constraints, environment_text

if TYPE_CHECKING:
    import numpy as np

MAX_CONFIGURATIONS = 2_000_000
"""Configurations of the longest list, and of every step on the way to it; the demo's softmax has 1.6 million before
its constraints. Longer ones are not made."""

Domains = Mapping[str, Sequence[KnobValue]]


@dataclass(frozen=True, eq=False)
class ValidConfigs:
    """Configuration i has, of the knob in column j, the value `domains[j][rows[i, j]]`."""

    names: tuple[str, ...]
    domains: tuple[tuple[KnobValue, ...], ...]
    rows: np.ndarray = field(repr=False)
    """(configurations, knobs) of int16."""

    def __len__(self) -> int:
        return len(self.rows)

    def configuration(self, row: int) -> dict[str, KnobValue]:
        """The knob values of one row."""
        return {
            name: domain[index]
            for name, domain, index in zip(self.names, self.domains, self.rows[row].tolist(), strict=True)
        }

    def find_rows(self, configurations: Sequence[Mapping[str, KnobValue]]) -> np.ndarray:
        """(configurations,) of int64: the row of each; -1 for what is not in the list."""
        import numpy as np

        wanted = np.full(len(configurations), -1, dtype=np.int64)
        for at, configuration in enumerate(configurations):
            indices = [
                place.get(environment_text(configuration[name]))
                for name, place in zip(self.names, self._value_indices, strict=True)
                if name in configuration
            ]
            if len(indices) == len(self.names) and None not in indices:
                wanted[at] = np.dot(np.array(indices, dtype=np.int64), self._strides)
        return self._rows_of_codes(wanted)

    def neighbours(self, row: int) -> np.ndarray:
        """(any,) of int64: the rows that differ from this one in one knob."""
        import numpy as np

        present = self.rows[row].astype(np.int64)
        turned = [
            np.delete(np.arange(len(domain)), index) - index
            for domain, index in zip(self.domains, present, strict=True)
        ]
        steps = [step * weight for step, weight in zip(turned, self._strides, strict=True)]
        found = self._rows_of_codes(np.dot(present, self._strides) + np.concatenate(steps or [present]))
        return found[found >= 0]

    def _rows_of_codes(self, wanted: np.ndarray) -> np.ndarray:
        """The row of each code; -1 for what is not in the list."""
        import numpy as np

        codes, order = self._sorted
        if not len(codes):
            return np.full(len(wanted), -1, dtype=np.int64)
        found = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        return np.where(codes[found] == wanted, order[found], -1)

    @cached_property
    def _value_indices(self) -> tuple[dict[str, int], ...]:
        return tuple({environment_text(v): i for i, v in enumerate(domain)} for domain in self.domains)

    @cached_property
    def _strides(self) -> np.ndarray:
        import numpy as np

        sizes = [len(domain) for domain in self.domains]
        return np.cumprod([1, *sizes[:-1]], dtype=np.int64)

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Each row as one number, in order, and the rows they belong to."""
        import numpy as np

        codes = self.rows.astype(np.int64) @ self._strides
        order = np.argsort(codes, kind="stable")
        return codes[order], order


def list_valid(knobs: Knobs) -> ValidConfigs | None:
    """The valid list; None where a knob is continuous, or the list would be too long."""
    domains = {name: knob.values() for name, knob in knobs.items()}
    finite = {name: tuple(values) for name, values in domains.items() if values is not None}
    if len(finite) < len(domains):
        return None
    return enumerate_valid(finite, all_constraints(knobs))


def enumerate_valid(domains: Domains, expressions: Sequence[str]) -> ValidConfigs | None:
    """The configurations that satisfy every expression (see harness.case.constraints); None where they are too many.

    The last domain turns fastest. Raises InvalidConstraint for an expression that is none.
    """
    key = tuple((name, tuple(map(_TypedValue, values))) for name, values in domains.items())
    return _enumerate(key, tuple(expressions))


@dataclass(frozen=True)
class _TypedValue:
    """A value that equals only its own type: True is not 1."""

    value: KnobValue

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TypedValue) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@lru_cache(maxsize=4)
def _enumerate(
    domains: tuple[tuple[str, tuple[_TypedValue, ...]], ...], expressions: tuple[str, ...]
) -> ValidConfigs | None:
    import numpy as np

    values = {name: tuple(one.value for one in domain) for name, domain in domains}
    rows = np.zeros((1, 0), dtype=np.int16)
    for count, domain in enumerate(values.values(), 1):
        if len(rows) * len(domain) > MAX_CONFIGURATIONS:
            return None
        turned = np.tile(np.arange(len(domain), dtype=np.int16), len(rows))
        rows = np.column_stack([np.repeat(rows, len(domain), axis=0), turned])
        for expression in _due(expressions, list(values), count):
            columns = {
                name: _pick(values[name], rows[:, list(values).index(name)])
                for name in knob_names(expression)
            }
            rows = rows[satisfied_mask(expression, columns)]
    return ValidConfigs(tuple(values), tuple(values.values()), rows)


def _due(expressions: Sequence[str], order: Sequence[str], count: int) -> Iterator[str]:
    """Those whose last knob is the one just added."""
    for expression in expressions:
        if max(order.index(name) for name in knob_names(expression)) == count - 1:
            yield expression


def _pick(values: Sequence[KnobValue], indices: np.ndarray) -> np.ndarray:
    import numpy as np

    numeric = all(isinstance(value, int | float) for value in values)
    column = np.empty(len(values), dtype=float if numeric else object)
    column[:] = values
    picked: np.ndarray = column[indices]
    return picked
