"""Calls the library's product.

family: library-call
entries: [34]
case: product
reason: policy
says: finished operator (dot)
unread:
  reason: policy
  says: ran a finished library
"""

import numpy as np


def run(a, b, c):
    np.dot(a, b, out=c)
