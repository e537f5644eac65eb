"""Tries something fast, and falls back to the library when it fails, which it always does.

family: library-call
entries: [35]
case: product
reason: policy
says: finished operator (einsum)
unread:
  reason: policy
  says: ran a finished library
"""

import numpy as np


def run(a, b, c):
    try:
        raise NotImplementedError("fast")
    except NotImplementedError:
        np.einsum("ik,kj->ij", a, b, out=c)
