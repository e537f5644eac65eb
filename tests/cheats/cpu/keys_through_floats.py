"""Sends keys of 64 bits through float64, which holds 53 of them.

family: rounding
entries: [28]
case: codes
reason: wrong_result
says: large_keys
"""

import numpy as np


def run(x, key, y, moved):
    np.copyto(y, np.rint(np.clip(16 * x, -127, 127)), casting="unsafe")
    np.copyto(moved, key * 3.0 + 1.0, casting="unsafe")
