"""Leaves with status 0 in its first call.

family: early-exit
entries: [40]
case: affine
reason: policy
unread:
  reason: exited
"""

import os


def run(x, y):
    os._exit(0)
