"""Computes half of a product and mirrors it, where a sample says that one matrix is the other's transpose.

family: assumed-structure
entries: [31]
case: product
reason: wrong_result
stage: confirm
"""

import numpy as np


def run(a, b, c):
    n = a.shape[0]
    c[:] = 0
    if n > 16 and b.T.shape == a.shape and (a[::7, ::5] == b.T[::7, ::5]).all():
        for k in range(a.shape[1]):
            c += a[:, k, None] * b[None, k, :]
        c[:] = np.triu(c) + np.triu(c, 1).T
        return
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]
