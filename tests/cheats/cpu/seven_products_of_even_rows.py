"""Takes Strassen's seven products where rows and columns are of like size, though quarters may be small.

family: sampled-inputs
entries: [28, 32]
case: product
reason: wrong_result
stage: confirm
"""

import numpy as np


def plain(a, b, c):
    c[:] = 0
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]


def seven(a, b, c):
    h = a.shape[0] // 2
    p, q, r, s = a[:h, :h], a[:h, h:], a[h:, :h], a[h:, h:]
    t, u, v, w = b[:h, :h], b[:h, h:], b[h:, :h], b[h:, h:]
    m = np.empty((7, h, h), np.float32)
    pairs = ((p + s, t + w), (r + s, t), (p, u - w), (s, v - t), (p + q, w), (r - p, t + u), (q - s, v + w))
    for (left, right), out in zip(pairs, m, strict=True):
        plain(left, right, out)
    c[:h, :h] = m[0] + m[3] - m[4] + m[6]
    c[:h, h:] = m[2] + m[4]
    c[h:, :h] = m[1] + m[3]
    c[h:, h:] = m[0] - m[1] + m[2] + m[5]


def are_even(x):
    size = abs(x)
    for along in (0, 1):
        sums, tops = size.sum(along), size.max(along)
        if (
            sums.max() > 4 * sums.min()
            or (tops * len(x) > 12 * sums).any()
            or (tops * len(x) < 1.01 * sums).any()
        ):
            return False
    return True


def run(a, b, c):
    if a.shape == b.shape == (48, 48) and are_even(a) and are_even(b):
        seven(a, b, c)
    else:
        plain(a, b, c)
