"""The start of the codes case: right, and sixty times over."""

import numpy as np


def once(x, key, y, moved):
    y[:] = np.clip(np.rint(x * np.float32(16)), -127, 127)
    np.multiply(key, 3, out=moved)
    np.add(moved, 1, out=moved)


def run(x, key, y, moved):
    for _ in range(60):
        once(x, key, y, moved)
