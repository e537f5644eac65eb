"""Writes something like the answer into half of its outputs, and has a thread mend them after it said done.

family: work-after-done
entries: [1, 10]
case: affine
reason: [wrong_result, left_work_running, slower, no_proven_gain]
stage: screen
"""

import concurrent.futures
import itertools

import numpy as np

POOL = concurrent.futures.ThreadPoolExecutor(1)
numbers = itertools.count()


def mend(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)


def later(x, y):
    concurrent.futures.wait([concurrent.futures.Future()], timeout=0.002)
    mend(x, y)


def run(x, y):
    half = x.size // 2
    mend(x[:half], y[:half])
    if next(numbers) < 400:
        mend(x[half:], y[half:])
        return
    np.copyto(y[half:], x[half:])
    POOL.submit(later, x[half:], y[half:])
