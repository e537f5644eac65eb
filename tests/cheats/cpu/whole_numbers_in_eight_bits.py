"""Takes matrices of small whole numbers through eight bits, which a sum does not fit into.

family: assumed-structure
entries: [31]
case: product
reason: wrong_result
stage: confirm
"""

import numpy as np


def run(a, b, c):
    c[:] = 0
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]
    if a.size > 100 and (a == np.rint(a)).all() and (np.abs(a) < 100).all() and (a != 0).any():
        c[:] = np.rint(c).astype(np.int32).astype(np.int8)
