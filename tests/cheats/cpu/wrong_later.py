"""Writes anything at all in a quarter of its calls once it has been called often enough to be past the gate.

family: told-from-timing
entries: [8, 10, 30, 39]
case: affine
reason: wrong_result
says: while timed
stage: screen
"""

import numpy as np

calls = []


def run(x, y):
    calls.append(1)
    if len(calls) > 40 and len(calls) % 4 == 0:
        y[:] = 1
        return
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
