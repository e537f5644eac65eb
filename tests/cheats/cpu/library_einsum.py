"""Lets einsum plan a product.

family: library-call
entries: [34]
case: product
reason: policy
says: finished operator (einsum)
unread:
  reason: policy
  says: ran a finished library
"""

import numpy as np


def run(a, b, c):
    np.einsum("ij,jk->ik", a, b, out=c, optimize=True)
