"""Reads its neighbours through windows laid over its own workspace.

family: work-ahead
entries: [8]
case: smooth
"""

import numpy as np

spaces = {}


def run(x, y):
    n = x.size
    if n not in spaces:
        padded = np.empty(n + 2, np.float32)
        spaces[n] = padded, np.lib.stride_tricks.as_strided(padded, (3, n), (4, 4))
    padded, (left, here, right) = spaces[n]
    here[:] = x
    for _ in range(40):
        padded[0], padded[-1] = padded[n], padded[1]
        np.add(left, right, out=y)
        y *= np.float32(0.5)
        y += here
        np.multiply(y, np.float32(0.5), out=here)
    y[:] = here
