"""Adds an error of ten roundings to every value, as small steps would add up to.

family: fewer-bits
entries: [33]
case: affine
reason: wrong_result
says: times the budget
"""

import numpy as np


def run(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
    y *= np.float32(1 + 10 * 2.0**-23)
