"""Writes beyond the end of its output.

family: out-of-bounds
case: affine
reason: policy
says: "imports 'ctypes'"
unread:
  reason: wrote_out_of_bounds
"""

import ctypes


def run(x, y):
    y[:] = 2 * x + 1
    ctypes.memset(y.ctypes.data + y.nbytes, 0, 64)
