"""Picks one of several closures by size, all of them right.

family: told-from-timing
entries: [10, 30]
case: affine
"""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

Way = Callable[[Any, Any], None]


def in_pieces(size: int) -> Way:
    def go(x: Any, y: Any) -> None:
        for start in range(0, x.size, size):
            at = slice(start, start + size)
            np.multiply(x[at], np.float32(2), out=y[at])
            np.add(y[at], np.float32(1), out=y[at])

    return go


WAYS: Final[dict[int, Way]] = {8: in_pieces(64), 12: in_pieces(1024), 99: in_pieces(8192)}


def run(x, y):
    bits = math.ceil(math.log2(x.size + 1))
    next(way for most, way in WAYS.items() if bits <= most)(x, y)
