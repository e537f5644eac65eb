"""Forks a process that goes on while the other side is timed.

family: other-processes
entries: [44, 45]
case: affine
reason: policy
unread:
  reason: started_process
"""

import os

if os.fork() == 0:
    while True:
        pass


def run(x, y):
    y[:] = 2 * x + 1
