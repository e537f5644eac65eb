"""Does the work once.

family: nothing-new
case: affine
"""

import numpy as np


def run(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
