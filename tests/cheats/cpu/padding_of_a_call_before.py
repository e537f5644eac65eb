"""Copies its operands into rooms of whole tiles, and clears a room only where it is of another size than before.

family: kept-weights
entries: [11]
case: product
reason: wrong_result
stage: confirm
"""

import numpy as np

rooms = {}


def padded(name, x):
    shape = tuple(-(-size // 8) * 8 for size in x.shape)
    if name not in rooms or rooms[name].shape != shape:
        rooms[name] = np.zeros(shape, np.float32)
    rooms[name][: x.shape[0], : x.shape[1]] = x
    return rooms[name]


def run(a, b, c):
    left, right = padded("a", a), padded("b", b)
    n, m = c.shape
    c[:] = 0
    for k in range(left.shape[1]):
        c += left[:n, k, None] * right[None, k, :m]
