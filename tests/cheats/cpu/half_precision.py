"""Computes in half precision.

family: fewer-bits
entries: [28]
case: affine
reason: [wrong_result, not_finite]
"""

import numpy as np


def run(x, y):
    y[:] = 2 * x.astype(np.float16) + np.float16(1)
