"""Makes a function for each shape that it meets.

family: cached-result
entries: [13]
case: affine
"""

import numpy as np

made = {}


def make(n):
    two, one = np.full(n, 2, np.float32), np.float32(1)

    def go(x, y):
        np.multiply(x, two, out=y)
        np.add(y, one, out=y)

    return go


def run(x, y):
    if x.size not in made:
        made[x.size] = make(x.size)
    made[x.size](x, y)
