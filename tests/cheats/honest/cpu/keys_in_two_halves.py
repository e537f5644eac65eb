"""Multiplies keys in two halves of 32 bits that carry into each other.

family: rounding
case: codes
"""

import numpy as np

MASK = np.uint64(2**32 - 1)
HALF = np.uint64(32)


def run(x, key, y, moved):
    np.copyto(y, np.rint(np.clip(16 * x, -127, 127)), casting="unsafe")
    bits = key.view(np.uint64)
    low = (bits & MASK) * np.uint64(3) + np.uint64(1)
    high = (bits >> HALF) * np.uint64(3) + (low >> HALF)
    moved[:] = ((high << HALF) | (low & MASK)).view(np.int64)
