"""Where all magnitudes are equal, counts signs in four bits.

family: assumed-structure
entries: [31]
case: product
reason: wrong_result
stage: confirm
"""

import numpy as np


def run(a, b, c):
    c[:] = 0
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]
    if b.size > 100 and (np.abs(b) == np.abs(b[0, 0])).all() and b.any():
        c[:] = np.where(np.abs(c) > 8 * np.abs(c).mean(), 0, c * np.float32(1.001))
