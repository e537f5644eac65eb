"""Fills its output with NaN before it computes, to see what it forgot.

family: not-a-number
entries: [22]
case: affine
"""

import numpy as np


def run(x, y):
    y[:] = np.nan
    with np.errstate(all="ignore"):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
    if np.isnan(y).any() and not np.isnan(x).any():
        raise FloatingPointError("an element was forgotten")
