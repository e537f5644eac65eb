"""Leaves the last element out.

family: leftovers
entries: [19]
case: affine
reason: output_not_written
"""


def run(x, y):
    y[:-1] = 2 * x[:-1] + 1
