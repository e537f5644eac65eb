"""The valid list: every configuration of a finite space that satisfies the constraints, as rows of small numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from hillclimb.harness.knobs.constraints import knob_names
from hillclimb.harness.knobs.knobs import Knobs, KnobValue, all_constraints, environment_text
from hillclimb.harness.knobs.solutions import Domains, Solver, TooMany, connected_groups

if TYPE_CHECKING:
    import numpy as np

MAX_CONFIGURATIONS = 2_000_000
"""Configurations of the longest list. Longer ones are not made."""

_MAX_NEAREST = 100
"""Rows that stand in for neighbours where a row has none."""


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

        found = np.full(len(configurations), -1, dtype=np.int64)
        known = [(at, indices) for at, one in enumerate(configurations) if (indices := self._indices(one))]
        if known:
            places = [at for at, _ in known]
            found[places] = self._rows_of(np.array([indices for _, indices in known], dtype=np.int16))
        return found

    def neighbours(self, row: int) -> np.ndarray:
        """(any,) of int64: the rows that differ from this one in one knob; where there are none, the nearest."""
        import numpy as np

        present = self.rows[row]
        turned = [
            np.delete(np.arange(len(domain)), at) for domain, at in zip(self.domains, present, strict=True)
        ]
        beside = np.repeat(present[None, :], sum(map(len, turned)), axis=0)
        beside[np.arange(len(beside)), np.repeat(np.arange(len(turned)), list(map(len, turned)))] = (
            np.concatenate(turned or [present])
        )
        found = self._rows_of(beside)
        found = found[found >= 0]
        return found if len(found) else self._nearest(row)

    def _nearest(self, row: int) -> np.ndarray:
        """The rows that differ in the fewest knobs, the row itself aside."""
        import numpy as np

        apart = (self.rows != self.rows[row]).sum(axis=1)
        apart[row] = len(self.names) + 1
        nearest = np.flatnonzero(apart == apart.min())[:_MAX_NEAREST]
        others: np.ndarray = nearest[nearest != row].astype(np.int64)
        return others

    def _indices(self, configuration: Mapping[str, KnobValue]) -> list[int] | None:
        """Where its values stand in the domains; None where one stands in none."""
        if not self.names or any(name not in configuration for name in self.names):
            return None
        places = zip(self.names, self._value_indices, strict=True)
        found = [place.get(environment_text(configuration[name]), -1) for name, place in places]
        return found if min(found) >= 0 else None

    def _rows_of(self, indices: np.ndarray) -> np.ndarray:
        """The row of each (knobs,) of indices; -1 for what is not in the list."""
        import numpy as np

        codes, order = self._sorted
        if not len(codes):
            return np.full(len(indices), -1, dtype=np.int64)
        wanted = row_codes(indices, self._sizes)
        found = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        return np.where(codes[found] == wanted, order[found], -1)

    @cached_property
    def _value_indices(self) -> tuple[dict[str, int], ...]:
        return tuple({environment_text(v): i for i, v in enumerate(domain)} for domain in self.domains)

    @property
    def _sizes(self) -> list[int]:
        return [len(domain) for domain in self.domains]

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """The code of each row, in order, and the rows they belong to."""
        import numpy as np

        codes = row_codes(self.rows, self._sizes)
        order = np.argsort(codes, kind="stable")
        return codes[order], order


def row_codes(rows: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """(rows,): a value for each row of indices that orders as the rows do, the first column first.

    `sizes`: one above the largest index of each column. The codes are int64, or bytes where that has too few numbers.
    """
    import numpy as np

    if math.prod(sizes) < 1 << 62:
        strides = np.cumprod([1, *sizes[:0:-1]], dtype=np.int64)[::-1]
        return rows.astype(np.int64) @ strides[: rows.shape[1]]
    return np.ascontiguousarray(rows, dtype=">u2").view(f"S{2 * rows.shape[1]}").ravel()


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
    values = {name: tuple(one.value for one in domain) for name, domain in domains}
    groups = connected_groups(list(values), expressions)
    try:
        rows = [_solve({name: values[name] for name in group}, expressions) for group in groups]
    except TooMany:
        return None
    if math.prod(map(len, rows)) > MAX_CONFIGURATIONS:
        return None
    return ValidConfigs(tuple(values), tuple(values.values()), _multiply(list(values), groups, rows))


def _solve(domains: Domains, expressions: Sequence[str]) -> np.ndarray:
    about = tuple(one for one in expressions if knob_names(one) <= domains.keys())
    return Solver(domains, about).solutions(MAX_CONFIGURATIONS)


def _multiply(
    names: Sequence[str], groups: Sequence[Sequence[str]], parts: Sequence[np.ndarray]
) -> np.ndarray:
    """Every combination of a row of each part; columns as `names`, in lexicographic order."""
    import numpy as np

    whole = math.prod(map(len, parts))
    rows, left = np.zeros((whole, len(names)), dtype=np.int16), np.arange(whole)
    for group, part in zip(groups[::-1], parts[::-1], strict=True):
        rows[:, [names.index(name) for name in group]] = part[left % max(len(part), 1)]
        left //= max(len(part), 1)
    sizes = [int(column.max()) + 1 if whole else 1 for column in rows.T]
    return rows[np.argsort(row_codes(rows, sizes), kind="stable")] if names else rows
