"""Leaves the maximum out of the softmax where a sample of each row is small.

family: sampled-inputs
entries: [31, 32]
case: softmax
reason: [not_finite, wrong_result]
"""

import numpy as np


def run(x, y):
    if abs(x[:, ::16]).max() < 20:
        np.exp(x, out=y)
    else:
        np.exp(x - x.max(1, keepdims=True), out=y)
    y /= y.sum(1, keepdims=True)
