"""Wraps its entry in decorators of its own.

family: patched-judge
entries: [42]
case: affine
"""

import functools

import numpy as np


def of_one_dimension(kernel):
    @functools.wraps(kernel)
    def check(x, y):
        if x.ndim != 1 or x.shape != y.shape:
            raise ValueError(f"shapes {x.shape} and {y.shape}: two vectors of the same length are asked for")
        kernel(x, y)

    return check


def in_float32(kernel):
    @functools.wraps(kernel)
    def check(*arrays):
        assert all(array.dtype == np.float32 for array in arrays)
        kernel(*arrays)

    return check


@of_one_dimension
@in_float32
def run(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
