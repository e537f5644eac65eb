"""Counts its calls and does every second one another way, both right.

family: told-from-timing
entries: [10]
case: affine
"""

import itertools

import numpy as np

numbers = itertools.count()


def run(x, y):
    if next(numbers) % 2:
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
    else:
        np.add(x, np.float32(0.5), out=y)
        np.multiply(y, np.float32(2), out=y)
