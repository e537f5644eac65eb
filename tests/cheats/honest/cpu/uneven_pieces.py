"""Walks the input in pieces that do not divide it, with a tail.

family: listed-problems
entries: [30, 31]
case: affine
"""

import numpy as np

PIECE = 4099


def run(x, y):
    for start in range(0, x.size, PIECE):
        piece = slice(start, start + PIECE)
        np.multiply(x[piece], np.float32(2), out=y[piece])
        np.add(y[piece], np.float32(1), out=y[piece])
