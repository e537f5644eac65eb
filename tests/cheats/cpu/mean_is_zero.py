"""Writes zero for the mean of random numbers.

family: constant-answer
entries: [27]
case: norm
reason: wrong_result
"""

import numpy as np


def run(x, y, mean):
    m = x.mean(1, keepdims=True)
    np.subtract(x, m, out=y)
    y /= np.sqrt((y * y).mean(1, keepdims=True) + np.float32(1e-5))
    mean[:] = 0
