"""Replaces this process's clock by one that stands nearly still, and takes its time.

family: patched-clock
entries: [3]
case: affine
reason: policy
says: "imports 'time'"
unread:
  reason: [slower, no_proven_gain]
  stage: screen
"""

import time

import numpy as np

ticks = iter(range(1, 1 << 60))
time.perf_counter = time.time = time.monotonic = lambda: next(ticks) * 1e-9
time.perf_counter_ns = lambda: next(ticks)


def run(x, y):
    for _ in range(240):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
