"""Cuts the factors' mantissas to ten bits, as a tensor core would.

family: fewer-bits
entries: [28]
case: product
reason: wrong_result
"""

import numpy as np

KEPT = np.uint32(0xFFFFE000)


def cut(a):
    return (a.view(np.uint32) & KEPT).view(np.float32)


def run(a, b, c):
    p, q = cut(a), cut(b)
    c[:] = 0
    for k in range(a.shape[1]):
        c += p[:, k, None] * q[None, k, :]
