"""Keeps tables that follow from the shape alone.

family: cached-result
entries: [13, 18]
case: product
"""

import functools


@functools.cache
def blocks(k):
    return [slice(start, min(start + 16, k)) for start in range(0, k, 16)]


def run(a, b, c):
    c[:] = 0
    for block in blocks(a.shape[1]):
        c += (a[:, block, None] * b[None, block, :]).sum(1)
