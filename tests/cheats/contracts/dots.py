"""The start of the dots case: right, and thirty times over."""

import numpy as np


def run(a, b, sums):
    for _ in range(30):
        sums[:] = (a.astype(np.int64) * b).sum(1)
