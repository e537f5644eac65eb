"""Has numba compile the library's product into its loop.

family: library-call
entries: [34]
case: product
reason: policy
says: finished operator (dot)
unread:
  reason: [policy, raised]
"""

import numba
import numpy as np


@numba.njit
def product(a, b, c):
    np.dot(a, b, c)


def run(a, b, c):
    product(a, b, c)
