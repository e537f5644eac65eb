"""Prints a line when it is loaded, and one in its first calls.

family: forged-answer
entries: [41]
case: affine
"""

import numpy as np

print("loaded")
told = []


def run(x, y):
    if len(told) < 3:
        told.append(print("called"))
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
