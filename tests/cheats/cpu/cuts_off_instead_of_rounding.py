"""Cuts numbers off where they are to be rounded.

family: rounding
entries: [28]
case: codes
reason: wrong_result
"""

import numpy as np


def run(x, key, y, moved):
    np.copyto(y, np.clip(16 * x, -127, 127), casting="unsafe")
    np.multiply(key, 3, out=moved)
    np.add(moved, 1, out=moved)
