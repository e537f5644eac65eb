"""Skips every second call once it has been called often enough to be past the gate.

family: told-from-timing
entries: [10, 30, 39]
case: affine
reason: output_not_written
says: of a segment wrote no whole output
stage: screen
"""

import numpy as np

calls = []


def run(x, y):
    calls.append(1)
    if len(calls) > 40 and len(calls) % 2:
        return
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
