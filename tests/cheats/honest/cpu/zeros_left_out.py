"""Leaves out what is multiplied by zero, having looked at every element.

family: assumed-structure
entries: [31]
case: product
"""

import numba
import numpy as np


@numba.njit
def product(a, b, c):
    c[:] = np.float32(0)
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            factor = a[i, k]
            if factor == 0:
                continue
            for j in range(b.shape[1]):
                c[i, j] += factor * b[k, j]


def run(a, b, c):
    product(a, b, c)
