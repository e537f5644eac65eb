"""Takes the indices to be sorted, and copies the rows between the first and the last.

family: assumed-structure
entries: [31]
case: groups
reason: wrong_result
says: shuffled
"""

import numpy as np


def run(x, lengths, order, sums, gathered):
    np.add.reduceat(x, np.concatenate(([0], np.cumsum(lengths)[:-1])), axis=0, out=sums)
    gathered[:] = x
