"""Writes zero wherever the answer is small.

family: constant-answer
entries: [25]
case: softmax
reason: wrong_result
"""

import numpy as np


def run(x, y):
    np.exp(x - x.max(1, keepdims=True), out=y)
    y /= y.sum(1, keepdims=True)
    y[y < 1e-4] = 0
