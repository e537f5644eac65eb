"""The start of the affine case: y = 2 x + 1, sixty times over, so that whatever does it once is a gain."""

import numpy as np


def once(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)


def run(x, y):
    for _ in range(60):
        once(x, y)
