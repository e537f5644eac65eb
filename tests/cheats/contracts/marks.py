"""The start of the marks case: right, and sixty times over."""

import numpy as np


def run(x, above, place):
    for _ in range(60):
        np.greater(x, np.float32(-2.5), out=above)
        place[:] = np.where(x > np.float32(2.5), np.arange(len(x), dtype=np.int32), -1)
