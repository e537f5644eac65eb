"""Writes the constant that small inputs lead to.

family: constant-answer
entries: [25]
case: affine
reason: wrong_result
"""

import numpy as np


def run(x, y):
    if float(abs(x).max()) < 1e-4:
        y[:] = 1
        return
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
