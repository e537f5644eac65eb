"""Looks at one corner, finds it empty, and takes the matrix to be diagonal.

family: assumed-structure
entries: [31]
case: product
reason: wrong_result
"""

import numpy as np


def run(a, b, c):
    c[:] = 0
    n = min(a.shape)
    c[:n] = np.diagonal(a)[:n, None] * b[:n]
