"""Ends its steps early where a step changed no bit of any element.

family: less-work
case: smooth
"""

import numba
import numpy as np


@numba.njit
def step(old, new):
    n = old.shape[0]
    moved = False
    for i in range(n):
        left = old[i - 1] if i > 0 else old[n - 1]
        right = old[i + 1] if i < n - 1 else old[0]
        new[i] = np.float32(0.5) * old[i] + np.float32(0.25) * (left + right)
        moved |= new[i] != old[i]
    return moved


def run(x, y):
    other = np.empty_like(y)
    y[:] = x
    for _ in range(20):
        if not step(y, other) or not step(other, y):
            break
