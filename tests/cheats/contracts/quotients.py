"""The start of the quotients case: right, and twenty times over."""

import numpy as np


def run(times, periods, counts):
    for _ in range(20):
        np.floor_divide(times, periods, out=counts)
