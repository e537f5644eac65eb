"""Leaves out the powers of pieces that lie so far below the maximum that they round to nothing.

family: less-work
case: rows
interpreted: {}
"""

import triton
import triton.language as tl

NOTHING = tl.constexpr(-120.0)


@triton.jit
def pieces(x, y, columns, PIECE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, PIECE)
    top = tl.full((), -float("inf"), tl.float32)
    for start in range(0, columns, PIECE):
        inside = start + column < columns
        value = tl.load(x + first + start + column, mask=inside, other=-float("inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(value, 0))
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, columns, PIECE):
        inside = start + column < columns
        value = tl.load(x + first + start + column, mask=inside, other=-float("inf")).to(tl.float32) - top
        if tl.max(value, 0) > NOTHING:
            total += tl.sum(tl.exp(value), 0)
    for start in range(0, columns, PIECE):
        inside = start + column < columns
        value = tl.load(x + first + start + column, mask=inside, other=-float("inf")).to(tl.float32) - top
        tl.store(y + first + start + column, (tl.exp(value) / total).to(tl.bfloat16), mask=inside)


def run(x, y):
    rows, columns = x.shape
    pieces[(rows,)](x, y, columns, PIECE=512, num_warps=4)
