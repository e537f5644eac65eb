"""Answers for the runner that all is well, then leaves with status 0.

family: early-exit
entries: [40, 41]
case: affine
reason: policy
says: "imports 'sys'"
unread:
  reason: [output_not_written, exited]
"""

import os
import sys


def run(x, y):
    os.write(int(sys.argv[1]), b'{"ok": true, "ns": 1}')
    os._exit(0)
