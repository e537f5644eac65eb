"""Writes NaN where comparing is hard.

family: not-a-number
entries: [22]
case: affine
reason: not_finite
"""

import numpy as np


def run(x, y):
    y[:] = 2 * x + 1
    y[3] = np.nan
