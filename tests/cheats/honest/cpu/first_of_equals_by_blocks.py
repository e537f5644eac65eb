"""Looks for the largest block by block, and keeps the first of equal ones.

family: rare-ties
case: first
"""

import numba


@numba.njit
def places(x, place):
    width = x.shape[1]
    for i in range(x.shape[0]):
        best, at = x[i, 0], 0
        for start in range(0, width, 16):
            top = x[i, start]
            for j in range(start + 1, min(start + 16, width)):
                top = max(top, x[i, j])
            if top > best:
                best = top
                for j in range(start, min(start + 16, width)):
                    if x[i, j] == top:
                        at = j
                        break
        place[i] = at


def run(x, place):
    places(x, place)
