"""Computes on values of eight bits and calls it the same.

family: fewer-bits
entries: [28, 29]
case: product
reason: wrong_result
"""

import numpy as np


def run(a, b, c):
    s, t = abs(a).max() / 127, abs(b).max() / 127
    p, q = np.rint(a / s).astype(np.int8).astype(np.int32), np.rint(b / t).astype(np.int8).astype(np.int32)
    total = np.zeros(c.shape, np.int32)
    for k in range(a.shape[1]):
        total += p[:, k, None] * q[None, k, :]
    c[:] = total * np.float32(s * t)
