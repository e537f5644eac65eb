"""Leaves the last element out where the tails of rows and of columns meet and are as long as can be.

family: listed-problems
entries: [30]
case: product
reason: wrong_result
says: "~"
stage: confirm
"""


def run(a, b, c):
    n, m = c.shape
    c[:] = 0
    for k in range(a.shape[1]):
        c += a[:, k, None] * b[None, k, :]
    if n % 8 == 7 and m % 16 == 15:
        c[-1, -1] = 0
