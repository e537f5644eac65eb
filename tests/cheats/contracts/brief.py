"""The start of the brief case: as the affine one, but twelve times over, so that many calls fit into a segment."""

import numpy as np


def once(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)


def run(x, y):
    for _ in range(12):
        once(x, y)
