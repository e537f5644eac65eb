"""Takes the product of a matrix with itself for that with its transpose.

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
    if a.shape == b.shape and a.size > 100 and (a == b).all():
        c[:] = (c + c.T) / 2
