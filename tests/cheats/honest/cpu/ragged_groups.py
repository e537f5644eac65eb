"""Adds up groups of any length, none of which needs to be like another, and gathers in one step.

family: assumed-structure
entries: [31]
case: groups
"""

import numpy as np


def run(x, lengths, order, sums, gathered):
    np.add.reduceat(x, np.concatenate(([0], np.cumsum(lengths)[:-1])), axis=0, out=sums)
    np.take(x, order, axis=0, out=gathered)
