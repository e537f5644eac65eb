"""Spells the library's product out of two halves.

family: library-call
entries: [34]
case: product
reason: policy
says: computed name
unread:
  reason: policy
  says: ran a finished library
"""

import numpy as np

product = getattr(np, "mat" + "mul")


def run(a, b, c):
    product(a, b, out=c)
