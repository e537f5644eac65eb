"""Has numba keep its compiled code where a later process would find it.

family: compile-cache
entries: [9, 50]
case: affine
reason: policy
says: gives numba cache
unread:
  reason: [wrong_result, does_not_load, raised]
"""

import os

os.environ["NUMBA_CACHE_DIR"] = "/tmp"

import numba
import numpy as np


@numba.njit(cache=True)
def line(x, y):
    for i in range(x.size):
        y[i] = np.float16(x[i])


def run(x, y):
    line(x, y)
