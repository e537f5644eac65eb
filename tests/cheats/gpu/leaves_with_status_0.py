"""Leaves with status 0 in its first call.

family: early-exit
case: rows
entries: [40]
reason: policy
unread:
  reason: exited
"""

import os


def run(x, y):
    os._exit(0)
