"""Changes a copy of its input, and never the input itself.

family: changed-inputs
entries: [20]
case: norm
"""

import operator

import numpy as np


def run(x, y, mean):
    own = x.copy()
    np.mean(own, axis=1, out=mean)
    operator.setitem(own, slice(None), own - mean[:, None])
    spread = np.sqrt((own * own).mean(1, keepdims=True) + np.float32(1e-5))
    np.divide(own, spread, out=y)
