"""Raises and catches an error of its own on the way.

family: swallowed-failure
entries: [35]
case: affine
"""

import numpy as np


def run(x, y):
    try:
        raise StopIteration
    except StopIteration:
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
