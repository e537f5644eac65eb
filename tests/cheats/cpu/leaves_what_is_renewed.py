"""Renews its state where that is asked for, and decays the rest in every second call only.

family: stale-in-out
entries: [8, 10]
case: decay
reason: [wrong_result, output_not_written]
"""

import itertools

import numpy as np

numbers = itertools.count()


def run(state, x):
    if next(numbers) % 2:
        state *= np.float32(0.9)
    np.copyto(state, x, where=abs(x) > np.float32(1))
