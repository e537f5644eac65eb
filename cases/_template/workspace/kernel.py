"""S = sums of the rows of X, compiled by numba; the place of the real kernel of {{family}}/{{case}}."""

from __future__ import annotations

import numba
import numpy as np
from knobs import knob

BLOCK = np.uintp(knob("RS_BLOCK"))
ZERO = np.uintp(0)


@numba.njit(fastmath=knob("RS_FASTMATH"), error_model="numpy")
def run(x, s):  # type: ignore[no-untyped-def]
    """Sum each row in blocks of BLOCK columns. Called with the inputs, then the outputs to write."""
    columns = np.uintp(x.shape[1])
    for i in range(np.uintp(x.shape[0])):
        total = np.float32(0)
        for start in range(ZERO, columns, BLOCK):
            part = np.float32(0)
            for j in range(start, min(start + BLOCK, columns)):
                part += x[i, j]
            total += part
        s[i] = total
