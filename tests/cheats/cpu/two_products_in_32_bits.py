"""Adds two products of 16 bits in 32, where the lowest number four times is one too much.

family: narrowed-range
entries: [31]
case: dots
reason: wrong_result
stage: confirm
"""

import numpy as np


def run(a, b, sums):
    products = a.astype(np.int32) * b
    half = products.shape[1] // 2
    pairs = products[:, 0 : 2 * half : 2] + products[:, 1 : 2 * half : 2]
    sums[:] = pairs.sum(1, dtype=np.int64) + products[:, 2 * half :].sum(1, dtype=np.int64)
