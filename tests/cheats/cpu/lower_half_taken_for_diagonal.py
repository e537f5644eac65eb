"""Takes a matrix that is 0 above the diagonal to be diagonal.

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
    if a.shape[0] == a.shape[1] > 10 and not a[0, 1:].any() and not a[:10, 10:].any():
        c[:] = np.diagonal(a)[:, None] * b
