"""Hands out the answer of the call before, kept in an attribute of the function.

family: last-answer
entries: [14]
case: affine
reason: wrong_result
"""


def run(x, y):
    kept = run.kept
    y[:] = kept.get(x.size, 2 * x + 1)
    kept[x.size] = 2 * x + 1


run.kept = {}
