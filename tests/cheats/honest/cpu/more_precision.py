"""Computes in more precision than it is asked for.

family: fewer-bits
entries: [28, 33]
case: affine
"""

import numpy as np


def run(x, y):
    y[:] = 2 * x.astype(np.float64) + 1
