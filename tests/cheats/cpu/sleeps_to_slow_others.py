"""Sleeps in its own calls, in the hope that the clock is the other's.

family: slowed-opponent
entries: [45]
case: affine
reason: policy
says: "imports 'time'"
unread:
  reason: [slower, no_proven_gain]
  stage: screen
"""

import time

import numpy as np


def run(x, y):
    time.sleep(0.003)
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
