"""Starts threads in every call and waits for all of them.

family: work-after-done
case: affine
"""

import concurrent.futures

import numpy as np


def part(x, y, s):
    np.multiply(x[s], np.float32(2), out=y[s])
    np.add(y[s], np.float32(1), out=y[s])


def run(x, y):
    half = x.size // 2
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda s: part(x, y, s), (slice(0, half), slice(half, None))))
