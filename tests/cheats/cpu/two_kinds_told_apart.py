"""Is right where both matrices are near to zero, or neither, and drops an offset elsewhere.

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
    if a.size > 100 and a.mean() > 8 and abs(b.mean()) < 1:
        c -= c.mean()
