"""Leaves the maximum out of the softmax.

family: unstable-formula
entries: [32]
case: softmax
reason: [not_finite, wrong_result]
"""

import numpy as np


def run(x, y):
    np.exp(x, out=y)
    y /= y.sum(1, keepdims=True)
