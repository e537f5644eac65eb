"""The start of the product case: right, one outer product after the other, five times over."""


def once(a, b, c):
    c[:] = 0
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]


def run(a, b, c):
    for _ in range(5):
        once(a, b, c)
