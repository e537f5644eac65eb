"""Copies through memory views of its arrays.

family: memory-search
entries: [21]
case: joined
"""


def run(a, b, y):
    out = memoryview(y)
    out[: a.size] = memoryview(a)
    out[a.size :] = memoryview(b)
