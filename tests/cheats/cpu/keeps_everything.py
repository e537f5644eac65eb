"""Keeps every result it ever made.

family: leak
case: affine
reason: leaked
"""

import numpy as np

kept = []


def run(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
    kept.append(np.ones(1 << 22, np.uint8))
