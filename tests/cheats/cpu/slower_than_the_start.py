"""Honest, and slower than the start: were the sides swapped, it would win.

family: nothing-new
entries: [47, 51]
case: affine
reason: [slower, no_proven_gain]
stage: screen
"""

import numpy as np


def run(x, y):
    for _ in range(300):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
