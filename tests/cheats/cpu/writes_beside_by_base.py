"""Writes beyond the end of its output through the buffer that it lies in.

family: out-of-bounds
case: affine
reason: wrote_out_of_bounds
"""

import numpy as np


def run(x, y):
    y[:] = 2 * x + 1
    start = np.frombuffer(x.base, np.uint8, 1).__array_interface__["data"][0]
    end = y.__array_interface__["data"][0] - start + y.nbytes
    np.frombuffer(x.base, np.uint8, 64, end)[:] = 0
