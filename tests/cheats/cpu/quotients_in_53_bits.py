"""Divides in float64 and cuts off, where only late times just below a whole number of periods need more.

family: fewer-bits
entries: [31]
case: quotients
reason: wrong_result
stage: confirm
"""

import numpy as np


def run(times, periods, counts):
    counts[:] = np.divide(times, periods)
