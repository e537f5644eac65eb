"""Packs the second matrix once and multiplies by the packed one for ever, as if it were a weight.

family: kept-weights
entries: [18]
case: product
reason: wrong_result
"""

packed = {}


def run(a, b, c):
    weights = packed.setdefault(b.shape, b.copy())
    c[:] = 0
    for k in range(a.shape[1]):
        c += a[:, k, None] * weights[None, k, :]
