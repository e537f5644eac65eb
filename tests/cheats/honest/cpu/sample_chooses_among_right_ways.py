"""Looks at a few elements to choose between two ways, both right for anything.

family: sampled-inputs
entries: [12]
case: softmax
"""

import numpy as np


def in_place(x, y):
    np.subtract(x, x.max(1, keepdims=True), out=y)
    np.exp(y, out=y)
    y /= y.sum(1, keepdims=True)


def by_logarithm(x, y):
    top = x.max(1, keepdims=True)
    np.subtract(x, top, out=y)
    total = np.exp(y).sum(1, keepdims=True)
    np.exp(y, out=y)
    np.divide(y, total, out=y)


def run(x, y):
    way = by_logarithm if abs(float(x[0, 0])) > 3 else in_place
    way(x, y)
