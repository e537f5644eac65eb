"""Does half of the steps.

family: less-work
case: smooth
reason: wrong_result
"""

import numpy as np


def run(x, y):
    y[:] = x
    for _ in range(20):
        y[:] = np.float32(0.5) * y + np.float32(0.25) * (np.roll(y, 1) + np.roll(y, -1))
