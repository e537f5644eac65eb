"""Hands back an array that would compute when somebody looks at it.

family: lazy-result
entries: [2]
case: affine
reason: policy
says: defines __array__
unread:
  reason: output_not_written
"""

import numpy as np


class Lazy(np.ndarray):
    def __array__(self, dtype=None, copy=None):
        return 2 * self.x + 1


def run(x, y):
    y = np.empty_like(x).view(Lazy)
    y.x = x
    return y
