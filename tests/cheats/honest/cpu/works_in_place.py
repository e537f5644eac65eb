"""Changes its state in place, in two passes of which the first leaves what is not the answer.

family: stale-in-out
case: decay
"""

import numpy as np


def run(state, x):
    state *= np.float32(0.9)
    np.copyto(state, x, where=abs(x) > np.float32(1))
