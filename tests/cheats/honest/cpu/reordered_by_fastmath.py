"""Lets the compiler reorder its sums, which stays within the budget.

family: fewer-bits
entries: [28, 33]
case: product
"""

import numba
import numpy as np


@numba.njit(fastmath=True, error_model="numpy")
def product(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = np.float32(0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


def run(a, b, c):
    product(a, b, c)
