"""The start of the first case: right, and sixty times over."""

import numpy as np


def run(x, place):
    for _ in range(60):
        np.argmax(x, axis=1, out=place)
