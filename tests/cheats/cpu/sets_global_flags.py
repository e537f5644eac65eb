"""Sets NumPy's flags for everybody who computes a reference in this process, and computes less exactly.

family: patched-judge
entries: [43]
case: affine
reason: policy
unread:
  reason: [wrong_result, not_finite]
"""

import numpy as np

np.seterr(all="ignore")
np.setbufsize(16)


def run(x, y):
    y[:] = 2 * x.astype(np.float16) + np.float16(1)
