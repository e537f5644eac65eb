from __future__ import annotations

import functools
from collections.abc import Iterator

from .sizes import BAND


class Plan:
    """Bands of rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    @classmethod
    @functools.cache
    def for_shape(cls, rows: int, columns: int) -> Plan:
        return cls(rows)

    def __iter__(self) -> Iterator[slice]:
        for at in range(0, self.rows, BAND):
            yield slice(at, at + BAND)
