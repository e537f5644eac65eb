"""Keeps a workspace of its own for each size, and computes in it.

family: cached-result
entries: [11, 13]
case: affine
"""

import numpy as np

spaces = {}


def run(x, y):
    space = spaces.setdefault(x.size, np.empty_like(x))
    np.multiply(x, np.float32(2), out=space)
    np.add(space, np.float32(1), out=y)
