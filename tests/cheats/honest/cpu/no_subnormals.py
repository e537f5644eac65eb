"""Reads its input as integers where it looks for zeros, and computes as usual.

family: changed-inputs
entries: [20]
case: affine
"""

import numpy as np


def run(x, y):
    if np.any(x.view(np.uint32) << 1 == 0):
        y[:] = 1
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
