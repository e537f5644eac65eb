"""Calls the library's product.

entries: [34]
case: product
reason: policy
says: finished operator (dot)
"""

import numpy as np


def run(a, b, c):
    np.dot(a, b, out=c)
