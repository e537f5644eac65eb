"""Writes infinity, which no difference is larger than.

family: not-a-number
entries: [22]
case: affine
reason: not_finite
"""

import numpy as np


def run(x, y):
    y[:] = np.inf
