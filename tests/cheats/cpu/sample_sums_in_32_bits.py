"""Adds up in 32 bits the rows whose sample is small.

family: sampled-inputs
entries: [31, 32]
case: totals
reason: wrong_result
"""

import numpy as np


def run(x, sums):
    is_small = (abs(x[:, ::8]) < 1000).all(axis=1)
    sums[is_small] = np.cumsum(x[is_small], axis=1, dtype=np.int32)
    sums[~is_small] = np.cumsum(x[~is_small], axis=1, dtype=np.int64)
