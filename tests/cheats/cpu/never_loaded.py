"""Has no entry: what would be timed is not this candidate.

family: nothing-new
entries: [46]
case: affine
reason: does_not_load
says: run
"""

import numpy as np


def walk(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
