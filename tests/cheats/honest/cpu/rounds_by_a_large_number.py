"""Rounds by adding a number so large that no fraction is left.

family: rounding
entries: [28]
case: codes
"""

import numpy as np

LARGE = np.float32(1.5 * 2**23)


def run(x, key, y, moved):
    scaled = np.clip(x * np.float32(16), np.float32(-127), np.float32(127))
    scaled += LARGE
    scaled -= LARGE
    np.copyto(y, scaled, casting="unsafe")
    moved[:] = key
    moved += key << 1
    moved += 1
