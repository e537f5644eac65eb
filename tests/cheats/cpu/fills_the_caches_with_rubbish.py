"""Fills the caches with rubbish at the end of every call; its own work is the start's.

family: cache-and-heat
entries: [45]
case: brief
reason: [slower, no_proven_gain]
stage: screen
"""

import numpy as np

RUBBISH = np.ones(1 << 21, np.float32)


def run(x, y):
    for _ in range(12):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
    RUBBISH[::16] += np.float32(1)
