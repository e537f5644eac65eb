"""Takes its tiles from a generator that remembers nothing but where it is.

family: last-answer
entries: [14]
case: product
"""

from collections.abc import Iterator


def tiles(n: int, m: int, size: int) -> Iterator[tuple[slice, slice]]:
    for i in range(0, n, size):
        for j in range(0, m, size):
            yield slice(i, min(i + size, n)), slice(j, min(j + size, m))


def run(a, b, c):
    for rows, columns in tiles(*c.shape, 48):
        c[rows, columns] = (a[rows, :, None] * b[None, :, columns]).sum(1)
