"""Writes zeros.

family: constant-answer
entries: [25]
case: affine
reason: wrong_result
"""


def run(x, y):
    y[:] = 0
