"""Takes the later of two blocks with equal maxima.

family: rare-ties
entries: [31]
case: first
reason: wrong_result
"""

import numba


@numba.njit
def places(x, place):
    for i in range(x.shape[0]):
        best, at = x[i, 0], 0
        for start in range(0, x.shape[1], 64):
            top, here = x[i, start], start
            for j in range(start, min(start + 64, x.shape[1])):
                if x[i, j] > top:
                    top, here = x[i, j], j
            if start == 0 or top >= best:
                best, at = top, here
        place[i] = at


def run(x, place):
    places(x, place)
