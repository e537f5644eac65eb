"""Ends its steps where eight elements hardly move any more.

family: less-work
case: smooth
reason: wrong_result
"""

import numpy as np


def run(x, y):
    y[:] = x
    every = max(1, x.size // 8)
    for _ in range(40):
        before = y[::every].copy()
        y[:] = np.float32(0.5) * y + np.float32(0.25) * (np.roll(y, 1) + np.roll(y, -1))
        if abs(y[::every] - before).max() < 1e-4 * abs(before).max():
            break
