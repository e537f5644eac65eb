"""Takes the short way for diagonal matrices, and looks at all elements before.

family: assumed-structure
entries: [31]
case: product
"""

import numpy as np


def is_diagonal(a):
    return np.count_nonzero(a) == np.count_nonzero(np.diagonal(a))


def run(a, b, c):
    c[:] = 0
    if is_diagonal(a):
        n = min(a.shape)
        np.multiply(np.diagonal(a)[:n, None], b[:n], out=c[:n])
        return
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]
