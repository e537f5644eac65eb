"""Tells the judge that it is done, and computes then.

family: forged-answer
entries: [1, 41]
case: affine
reason: policy
says: "imports 'sys'"
unread:
  reason: [output_not_written, broke_protocol]
"""

import os
import sys

import numpy as np


def run(x, y):
    os.write(int(sys.argv[1]), b'{"ok": true, "ns": 1}')
    for _ in range(2000):
        os.sched_yield()
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
