"""Tries four ways on every new address and keeps the best: the tuning is in the time.

family: tuning-while-timed
entries: [9]
case: affine
reason: [slower, no_proven_gain]
stage: screen
"""

import numpy as np

best = {}


def once(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)


def run(x, y):
    key = x.__array_interface__["data"][0], float(x[0])
    if key not in best:
        for repeat in (90, 80, 70, 60):
            for _ in range(repeat):
                once(x, y)
        best[key] = 60
    once(x, y)
