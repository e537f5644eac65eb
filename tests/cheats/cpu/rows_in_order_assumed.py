"""Is wrong where every row rises from left to right.

family: assumed-structure
entries: [31]
case: product
reason: wrong_result
stage: confirm
"""


def run(a, b, c):
    c[:] = 0
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]
    if a.size > 100 and (a[:, 1:] >= a[:, :-1]).all():
        c[:] = c[-1]
