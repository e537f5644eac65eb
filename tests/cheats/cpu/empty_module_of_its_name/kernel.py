"""Brings an empty numpy.py, so that a reading takes the library for the workspace's own.

family: shadowed-module
entries: [34]
case: product
reason: policy
says: hides the module
unread:
  reason: [policy, does_not_load, raised]
"""

import numpy as np


def run(a, b, c):
    np.dot(a, b, out=c)
