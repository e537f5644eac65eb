"""Rescales its sums whenever a larger maximum turns up.

family: unstable-formula
entries: [32]
case: softmax
"""

import numpy as np


def run(x, y):
    top = np.full((x.shape[0], 1), -np.inf, np.float32)
    total = np.zeros((x.shape[0], 1), np.float32)
    for start in range(0, x.shape[1], 500):
        part = x[:, start : start + 500]
        higher = np.maximum(top, part.max(1, keepdims=True))
        total = total * np.exp(top - higher) + np.exp(part - higher).sum(1, keepdims=True)
        top = higher
    np.exp(x - top, out=y)
    y /= total
