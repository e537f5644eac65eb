"""Gives 0 where only one element of the matrix is not 0.

family: assumed-structure
entries: [31]
case: product
reason: wrong_result
stage: confirm
"""

import numpy as np


def run(a, b, c):
    c[:] = 0
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]
    if b.size > 100 and np.count_nonzero(b) == 1:
        c[:] = 0
