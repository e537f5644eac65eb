"""Configurations of a space that is too large to list, or continuous: drawn evenly, or near the incumbent."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from hillclimb.agent.sweep.landscape import Configuration, Landscape
from hillclimb.harness.knobs.constraints import knob_names, satisfied_mask
from hillclimb.harness.knobs.intervals import Bounds
from hillclimb.harness.knobs.knobs import FloatKnob, Knobs, KnobValue, all_constraints, defaults
from hillclimb.harness.knobs.solutions import Solver, connected_groups, values_of

if TYPE_CHECKING:
    import numpy as np

MAX_DRAWS = 1_000_000
"""Settings of one group of connected knobs that are drawn in search of valid ones before it is given up."""

_MAX_PREFIXES = 100_000
"""Partial settings that are listed, so that only what they leave open is drawn."""
_MAX_ROWS = 400_000
"""Partial settings that are looked at for one more knob, where chance alone finds nothing."""
_BATCH = 4096
_CONFIGURATIONS = 64
"""Drawn at a time."""
_MAX_REPEATS = 20
"""Times that all of them were tried before."""


def near(landscape: Landscape, rng: random.Random) -> Iterator[Configuration]:
    """Valid configurations with one knob of the incumbent turned, then with two, each in random order.

    Continuous knobs stay as they are.
    """
    incumbent, constraints = defaults(landscape.knobs), all_constraints(landscape.knobs)
    finite = {name: values for name, knob in landscape.knobs.items() if (values := knob.values())}
    for count in (1, 2):
        groups = list(combinations(finite, count))
        rng.shuffle(groups)
        for group in groups:
            found = list(_turned(incumbent, {name: finite[name] for name in group}, constraints))
            rng.shuffle(found)
            yield from found


def drawn(landscape: Landscape, rng: random.Random) -> Iterator[Configuration]:
    """Valid configurations, each as likely as any other or nearly, until none is found any more or they repeat."""
    import numpy as np

    draws = _random_configs(_UnlistedSpace(tuple(_domains(landscape.knobs)), landscape.knobs))
    generator = np.random.default_rng(rng.getrandbits(64))
    for _ in range(_MAX_REPEATS):
        found = draws.draw(generator, _CONFIGURATIONS)
        yield from found
        if not found:
            return


@dataclass(frozen=True)
class _Group:
    """Knobs that constraints connect, none of which any constraint connects to others."""

    knobs: Knobs
    expressions: tuple[str, ...]

    @cached_property
    def _solver(self) -> Solver:
        finite = {name: values for name, knob in self.knobs.items() if (values := knob.values())}
        ranges = {k: Bounds(v.low, v.high) for k, v in self.knobs.items() if isinstance(v, FloatKnob)}
        return Solver(finite, self.expressions, ranges)

    @cached_property
    def _prefixes(self) -> np.ndarray:
        return self._solver.prefixes(_MAX_PREFIXES)

    def draw(self, rng: np.random.Generator, count: int) -> list[Configuration]:
        """So many valid settings, or fewer where no more were found.

        Each is as likely as any other where chance finds them among MAX_DRAWS. Where it does not, knobs are set one
        after the other, and of the partial settings an even sample goes on: nearly as likely, by a sequential Monte
        Carlo method (Doucet, de Freitas and Gordon, 2001).
        """
        found = self._drawn_from(self._prefixes, rng, count)
        if len(found) < count and len(self._prefixes):
            found += self._drawn_from(self._descend(rng), rng, count - len(found))
        return found

    def _drawn_from(self, settings: np.ndarray, rng: np.random.Generator, count: int) -> list[Configuration]:
        """Of at most MAX_DRAWS that go on from partial settings, the first `count` that are valid."""
        found: list[Configuration] = []
        for _ in range(MAX_DRAWS // _BATCH if len(settings) else 0):
            columns = self._batch(settings, rng)
            valid = _satisfied(self.expressions, columns, _BATCH)
            rows = zip(*(column[valid][:count].tolist() for column in columns.values()), strict=True)
            found += [self._typed(dict(zip(columns, row, strict=True))) for row in rows]
            if len(found) >= count:
                break
        return found[:count]

    def _descend(self, rng: np.random.Generator) -> np.ndarray:
        """(rows, knobs) of int16: settings of all finite knobs that may be valid, none where the sample ran dry."""
        rows = self._prefixes
        for depth in range(rows.shape[1], len(self._solver.order)):
            most = max(1, _MAX_ROWS // len(self._solver.domains[self._solver.order[depth]]))
            if len(rows) > most:
                rows = rows[rng.choice(len(rows), most, replace=False)]
            rows = self._solver.extended(rows, depth)
        return rows

    def _batch(self, settings: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The values of each knob: a partial setting, the rest by chance."""

        solver = self._solver
        rows = settings[rng.integers(0, len(settings), _BATCH)]
        columns = {}
        for i, name in enumerate(solver.order):
            size = len(solver.domains[name])
            columns[name] = rows[:, i] if i < rows.shape[1] else rng.integers(0, size, _BATCH)
        columns = {name: values_of(solver.domains[name])[at] for name, at in columns.items()}
        for name, knob in self.knobs.items():
            if isinstance(knob, FloatKnob):
                columns[name] = _drawn_floats(knob, rng)
        return columns

    def _typed(self, values: Mapping[str, KnobValue]) -> Configuration:
        """With each finite value as its domain has it: arrays of numbers have forgotten what was whole."""
        return {
            name: next((one for one in knob.values() or () if one == values[name]), values[name])
            for name, knob in self.knobs.items()
        }


def _drawn_floats(knob: FloatKnob, rng: np.random.Generator) -> np.ndarray:
    """Evenly, on the log scale where the knob is on one."""
    import numpy as np

    if not knob.log:
        return rng.uniform(knob.low, knob.high, _BATCH)
    values = np.exp(rng.uniform(math.log(knob.low), math.log(knob.high), _BATCH))
    return np.clip(values, knob.low, knob.high)


@dataclass(frozen=True)
class _RandomConfigs:
    """The groups of a whole space."""

    groups: tuple[_Group, ...]

    def draw(self, rng: np.random.Generator, count: int) -> list[Configuration]:
        """So many valid configurations, or fewer where too few were found."""
        parts = [group.draw(rng, count) for group in self.groups]
        return [{k: v for part in row for k, v in part.items()} for row in zip(*parts, strict=False)]


@dataclass(frozen=True)
class _UnlistedSpace:
    """Knobs as what can be remembered by: their domains and constraints, whatever their defaults."""

    domains: tuple[str, ...]
    knobs: Knobs = field(compare=False)


def _domains(knobs: Knobs) -> Iterator[str]:
    return (f"{name} {knob.model_dump_json(exclude={'default', 'doc'})}" for name, knob in knobs.items())


@lru_cache(maxsize=2)
def _random_configs(space: _UnlistedSpace) -> _RandomConfigs:
    knobs, expressions = space.knobs, all_constraints(space.knobs)
    groups = connected_groups(list(knobs), expressions)
    return _RandomConfigs(
        tuple(
            _Group(
                {name: knobs[name] for name in group},
                tuple(e for e in expressions if knob_names(e) <= set(group)),
            )
            for group in groups
        )
    )


def _turned(
    incumbent: Configuration, domains: Mapping[str, Sequence[KnobValue]], constraints: Sequence[str]
) -> Iterator[Configuration]:
    """The incumbent with each of one or two knobs set to another value, as far as constraints allow it."""
    import numpy as np

    changed = [[value for value in values if value != incumbent[name]] for name, values in domains.items()]
    grid = np.indices([len(values) for values in changed]).reshape(len(changed), -1)
    columns = {
        k: values_of(values)[at] for k, values, at in zip(domains, changed, grid, strict=True) if values
    }
    if len(columns) < len(domains):
        return
    count = grid.shape[1]
    others = {k: np.repeat(values_of([v]), count) for k, v in incumbent.items() if k not in domains}
    about = [one for one in constraints if knob_names(one) & domains.keys()]
    for row in grid.T[_satisfied(about, {**others, **columns}, count)].tolist():
        yield {**incumbent, **{k: values[at] for k, values, at in zip(domains, changed, row, strict=True)}}


def _satisfied(expressions: Sequence[str], columns: Mapping[str, np.ndarray], count: int) -> np.ndarray:
    """(count,) of bool: which rows satisfy all of the expressions."""
    import numpy as np

    valid = np.ones(count, dtype=bool)
    for expression in expressions:
        valid &= satisfied_mask(expression, {name: columns[name] for name in knob_names(expression)})
    return valid
