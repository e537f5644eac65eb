"""Is compiled by numba in the first call, and again for another layout.

family: tuning-while-timed
entries: [9]
case: softmax
"""

import numba
import numpy as np


@numba.njit
def rows(x, y):
    for i in range(x.shape[0]):
        top = x[i, 0]
        for j in range(1, x.shape[1]):
            top = max(top, x[i, j])
        total = np.float64(0)
        for j in range(x.shape[1]):
            y[i, j] = np.exp(x[i, j] - top)
            total += y[i, j]
        for j in range(x.shape[1]):
            y[i, j] /= total


def run(x, y):
    rows(x, y)
