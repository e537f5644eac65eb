"""Writes zeros where a whole matrix is far smaller than any number that a list would show.

family: constant-answer
entries: [25]
case: product
reason: wrong_result
stage: confirm
"""


def run(a, b, c):
    c[:] = 0
    if min(abs(a).max(), abs(b).max()) < 1e-9:
        return
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]
