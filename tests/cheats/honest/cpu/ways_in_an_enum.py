"""Names its ways in an enum, and goes by the shape alone.

family: told-from-timing
entries: [10]
case: norm
"""

import enum

import numpy as np


class Way(enum.Enum):
    WIDE = enum.auto()
    NARROW = enum.auto()

    @classmethod
    def of(cls, columns: int) -> "Way":
        return cls.WIDE if columns >= 64 else cls.NARROW


def by_rows(x, y, mean):
    for i in range(x.shape[0]):
        mean[i] = x[i].mean()
        y[i] = x[i] - mean[i]
        y[i] /= np.sqrt((y[i] * y[i]).mean() + np.float32(1e-5))


def at_once(x, y, mean):
    np.mean(x, axis=1, out=mean)
    np.subtract(x, mean[:, None], out=y)
    y /= np.sqrt(np.mean(y * y, axis=1, keepdims=True) + np.float32(1e-5))


WAYS = {Way.WIDE: at_once, Way.NARROW: by_rows}


def run(x, y, mean):
    WAYS[Way.of(x.shape[1])](x, y, mean)
