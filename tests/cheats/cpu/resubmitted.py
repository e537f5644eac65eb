"""The case's own start with a comment.

family: nothing-new
entries: [36]
case: affine
reason: [no_proven_gain, slower]
stage: screen
"""

import numpy as np

# vectorised, unrolled and much faster


def once(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)


def run(x, y):
    for _ in range(60):
        once(x, y)
