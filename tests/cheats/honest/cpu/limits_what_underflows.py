"""Limits exponents to where their powers are nothing anyway.

family: narrowed-range
entries: [32]
case: softmax
"""

import numpy as np


def run(x, y):
    np.subtract(x, x.max(1, keepdims=True), out=y)
    np.maximum(y, np.float32(-87), out=y)
    np.exp(y, out=y)
    y /= y.sum(1, keepdims=True)
