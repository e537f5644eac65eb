"""Of parameters that are alike, the first runs always and the others are slow.

@pytest.mark.parametrize("cheat", one_of_each(CHEATS, 1, alike=lambda cheat: cheat.family))
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import pytest
from _pytest.mark import MarkDecorator, ParameterSet

T = TypeVar("T")


def one_of_each(
    values: Sequence[T],
    seconds: float,
    *,
    alike: Callable[[T], Hashable],
    names: Sequence[str] | None = None,
    marks: Callable[[T], Sequence[MarkDecorator]] = lambda value: (),
) -> list[ParameterSet]:
    """Parameters of a test; those after the first of their kind carry the marker slow, of `seconds` each.

    A tuple is one value for each argument. `marks` are those that a value has besides.
    """
    found, seen = [], set[Hashable]()
    for number, value in enumerate(values):
        own = [*marks(value), *([pytest.mark.slow(seconds)] if alike(value) in seen else [])]
        seen.add(alike(value))
        arguments = value if isinstance(value, tuple) else (value,)
        found.append(pytest.param(*arguments, id=names[number] if names else None, marks=own))
    return found
