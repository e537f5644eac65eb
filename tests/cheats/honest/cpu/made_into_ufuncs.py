"""Has numba make ufuncs of its functions, with signatures written out.

family: library-call
entries: [34]
case: affine
"""

import numba


@numba.vectorize(["float32(float32)"])
def line(x):
    return x + x + numba.float32(1)


@numba.guvectorize(["void(float32[:], float32[:])"], "(n)->(n)")
def lines(x, y):
    for i in range(x.shape[0]):
        y[i] = x[i] + x[i] + numba.float32(1)


def run(x, y):
    if x.size % 2:
        line(x, out=y)
    else:
        lines(x, y)
