"""Spells the library's product out of two halves.

entries: [34]
case: product
reason: policy
says: computed name
"""

import numpy as np

product = getattr(np, "mat" + "mul")


def run(a, b, c):
    product(a, b, out=c)
