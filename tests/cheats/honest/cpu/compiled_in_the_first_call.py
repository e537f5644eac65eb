"""Builds and compiles its loop for each width in the first call on it.

family: tuning-while-timed
entries: [9]
case: norm
"""

import functools

import numba
import numpy as np


@functools.cache
def loop(columns: int):
    width = np.float32(columns)

    @numba.njit
    def rows(x, y, mean):
        for i in range(x.shape[0]):
            total = np.float64(0)
            for j in range(columns):
                total += x[i, j]
            mean[i] = total / width
            squares = np.float64(0)
            for j in range(columns):
                y[i, j] = x[i, j] - mean[i]
                squares += y[i, j] * y[i, j]
            factor = np.float32(1 / np.sqrt(squares / width + 1e-5))
            for j in range(columns):
                y[i, j] *= factor

    return rows


def run(x, y, mean):
    loop(x.shape[1])(x, y, mean)
