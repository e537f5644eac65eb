"""Multiplies matrices by class, whose * is a product.

family: library-call
entries: [34]
case: product
reason: policy
says: numpy.asmatrix
unread:
  reason: policy
  says: ran a finished library
"""

import numpy as np


def run(a, b, c):
    c[:] = np.asmatrix(a) * np.asmatrix(b)
