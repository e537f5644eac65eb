"""The start of the norm case: right, and ten times over."""

import numpy as np


def once(x, y, mean):
    np.mean(x, axis=1, out=mean)
    np.subtract(x, mean[:, None], out=y)
    y /= np.sqrt(np.mean(y * y, axis=1, keepdims=True) + np.float32(1e-5))


def run(x, y, mean):
    for _ in range(10):
        once(x, y, mean)
