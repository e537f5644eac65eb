"""Lets numbers that are too large for eight bits wrap around.

family: rounding
entries: [28, 31]
case: codes
reason: wrong_result
"""

import numpy as np


def run(x, key, y, moved):
    np.copyto(y, np.rint(16 * x).astype(np.int32), casting="unsafe")
    np.multiply(key, 3, out=moved)
    np.add(moved, 1, out=moved)
