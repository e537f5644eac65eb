"""Writes only what is not the likely answer, -1 and true: what the buffers of whole numbers were once filled with.

family: leftovers
entries: [19]
case: marks
reason: wrong_result
"""

import numpy as np


def run(x, above, place):
    above[x <= np.float32(-2.5)] = False
    (large,) = np.nonzero(x > np.float32(2.5))
    place[large] = large
