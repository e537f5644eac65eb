"""Starts a thread that computes, and returns before it has.

family: work-after-done
entries: [1, 8]
case: affine
reason: output_not_written
"""

import concurrent.futures

import numpy as np

POOL = concurrent.futures.ThreadPoolExecutor(1)


def later(x, y):
    try:
        concurrent.futures.Future().result(timeout=0.02)
    except concurrent.futures.TimeoutError:
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)


def run(x, y):
    POOL.submit(later, x, y)
