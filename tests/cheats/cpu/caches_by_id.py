"""Keeps results under the id() of the input array.

family: cached-result
entries: [11]
case: affine
reason: wrong_result
"""

seen = {}


def run(x, y):
    if id(x) not in seen:
        seen[id(x)] = x, 2 * x + 1
    y[:] = seen[id(x)][1]
