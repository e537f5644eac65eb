"""Keeps its own pool of workers between calls, and waits for each call's parts.

family: work-after-done
entries: [1]
case: affine
"""

import concurrent.futures

import numpy as np

POOL = concurrent.futures.ThreadPoolExecutor(2)


def part(x, y, s):
    np.multiply(x[s], np.float32(2), out=y[s])
    np.add(y[s], np.float32(1), out=y[s])


def run(x, y):
    half = x.size // 2
    for done in [POOL.submit(part, x, y, s) for s in (slice(0, half), slice(half, None))]:
        done.result()
