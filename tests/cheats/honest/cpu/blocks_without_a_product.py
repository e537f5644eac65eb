"""Multiplies by elementwise operations on blocks, in a workspace that it keeps.

family: library-call
entries: [34]
case: product
"""

import functools

import numpy as np


@functools.cache
def space(n, k, m):
    return np.empty((n, k, m), np.float32)


def run(a, b, c):
    parts = space(*a.shape, b.shape[1])
    np.multiply(a[:, :, None], b[None, :, :], out=parts)
    np.add.reduce(parts, axis=1, out=c)
