"""Leaves out the terms of a product whose factor is small against the largest.

family: less-work
case: product
reason: wrong_result
"""

import numpy as np


def run(a, b, c):
    c[:] = 0
    sizes = abs(a).max(0) * abs(b).max(1)
    for k in np.flatnonzero(sizes > 0.4 * sizes.max()):
        c += a[:, k, None] * b[None, k, :]
