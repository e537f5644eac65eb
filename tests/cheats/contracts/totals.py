"""The start of the totals case: right, and thirty times over."""

import numpy as np


def run(x, sums):
    for _ in range(30):
        np.cumsum(x, axis=1, dtype=np.int64, out=sums)
