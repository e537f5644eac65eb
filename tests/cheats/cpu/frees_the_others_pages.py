"""Gives the pages of the shared buffer back, so that the other side has to fault them in again.

family: slowed-opponent
entries: [45]
case: affine
reason: raised
says: "Error"
"""

import numpy as np

MADV_REMOVE = 9


def run(x, y):
    for _ in range(60):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
    memory = x.base
    start = np.frombuffer(memory, np.uint8, 1).__array_interface__["data"][0]
    at = x.__array_interface__["data"][0] - start
    memory.madvise(MADV_REMOVE, at // 4096 * 4096, max(4096, x.nbytes // 4096 * 4096))
