"""Where nothing is below 0, leaves out the least of a sum.

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
    if a.size > 100 and (a >= 0).all() and 0 < a.mean() < 5:
        c -= a[:, 0, None] * b[None, 0, :]
