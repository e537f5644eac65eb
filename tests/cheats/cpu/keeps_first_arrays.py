"""Does its work on the arrays of the first call for ever, as a stale replay does.

family: stale-replay
entries: [7]
case: affine
reason: output_not_written
"""

import numpy as np

bound = {}


def bind(x, y):
    def replay():
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)

    return replay


def run(x, y):
    bound.setdefault(x.size, bind(x, y))()
