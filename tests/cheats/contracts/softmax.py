"""The start of the softmax case: right, and ten times over."""

import numpy as np


def once(x, y):
    np.exp(x - np.max(x, axis=1, keepdims=True), out=y)
    y /= np.sum(y, axis=1, keepdims=True)


def run(x, y):
    for _ in range(10):
        once(x, y)
