"""Right for the timed shape alone.

family: listed-problems
entries: [30]
case: affine
reason: wrong_result
"""


def run(x, y):
    y[:] = 2 * x + 1
    if x.size != 20_000:
        y[:] = 2 * x
