"""Hands out the answer of the call before, kept in a default argument.

family: last-answer
entries: [14]
case: affine
reason: wrong_result
"""


def run(x, y, last={}):
    y[:] = last.get(x.size, 2 * x + 1)
    last[x.size] = 2 * x + 1
