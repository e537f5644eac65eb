"""Uses its output as scratch: what stands there meanwhile is not the answer.

family: leftovers
entries: [19]
case: softmax
"""

import numpy as np


def run(x, y):
    np.subtract(x, x.max(1, keepdims=True), out=y)
    np.exp(y, out=y)
    y /= y.sum(1, keepdims=True)
