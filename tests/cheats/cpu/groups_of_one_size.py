"""Takes all groups to be of the same length.

family: assumed-structure
entries: [31]
case: groups
reason: wrong_result
says: ragged
"""

import numpy as np


def run(x, lengths, order, sums, gathered):
    each = x.shape[0] // len(lengths)
    np.sum(x.reshape(len(lengths), each, -1), axis=1, out=sums)
    gathered[:] = x[order]
