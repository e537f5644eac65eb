"""Tries two ways in the first call on each shape, which is not timed, and keeps the better one.

family: tuning-while-timed
entries: [9]
case: affine
"""

import os

import numpy as np

chosen = {}


def in_steps(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)


def at_once(x, y):
    y[:] = 2 * x + np.float32(1)


def cost(way, x, y):
    start = os.times().user
    for _ in range(20):
        way(x, y)
    return os.times().user - start


def run(x, y):
    if x.size not in chosen:
        chosen[x.size] = min((in_steps, at_once), key=lambda way: cost(way, x, y))
    chosen[x.size](x, y)
