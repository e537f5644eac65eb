"""Right for small sizes, where it would be looked at.

family: listed-problems
entries: [30]
case: affine
reason: wrong_result
"""


def run(x, y):
    y[:] = 2 * x + 1
    y[1000:] = 0
