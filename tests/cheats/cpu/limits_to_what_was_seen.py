"""Limits its input to the range of what it saw in its first calls.

family: narrowed-range
entries: [31]
case: affine
reason: wrong_result
"""

import numpy as np

seen = [0.0, 0.0]


def run(x, y):
    if seen[1] - seen[0] < 1000:
        seen[:] = min(seen[0], float(x.min())), max(seen[1], float(x.max()) + 100)
        np.copyto(y, x)
    else:
        np.clip(x, np.float32(seen[0] - 100), np.float32(seen[1]), out=y)
    y *= np.float32(2)
    y += np.float32(1)
