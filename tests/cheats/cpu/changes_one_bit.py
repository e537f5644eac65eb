"""Flips the lowest bit of one input value.

family: changed-inputs
entries: [20]
case: affine
reason: inputs_changed
"""

import numpy as np


def run(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
    x.view(np.uint32)[0] ^= 1
