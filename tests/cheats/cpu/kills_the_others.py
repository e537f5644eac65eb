"""Sends SIGKILL to everybody it can reach.

family: other-processes
entries: [44]
case: affine
reason: policy
unread:
  reason: [out_of_memory, crashed, exited, wrong_result]
"""

import os


def run(x, y):
    for pid in (os.getppid(), -1):
        try:
            os.kill(pid, 9)
        except OSError:
            pass
    y[:] = 0
