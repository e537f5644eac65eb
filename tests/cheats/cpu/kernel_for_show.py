"""Multiplies a corner by hand, and lets the library do the rest.

family: library-call
entries: [37]
case: product
reason: policy
says: finished operator (tensordot)
"""

import numba
import numpy as np


@numba.njit
def corner(a, b, c):
    c[0, 0] = 0
    for k in range(a.shape[1]):
        c[0, 0] += a[0, k] * b[k, 0]


def run(a, b, c):
    c[:] = np.tensordot(a, b, 1)
    corner(a, b, c)
