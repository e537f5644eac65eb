"""Imports the library inside a class, where dotted names do not lead.

family: library-call
entries: [34]
case: product
reason: policy
says: imports inside a class
unread:
  reason: policy
  says: ran a finished library
"""


class Tools:
    import numpy as np


def run(a, b, c):
    c[:] = Tools.np.asmatrix(a) * b
