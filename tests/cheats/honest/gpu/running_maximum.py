"""Walks each row in pieces, and rescales its sum whenever a larger maximum turns up.

family: unstable-formula
entries: [32]
case: rows
interpreted: {}
"""

import triton
import triton.language as tl


@triton.jit
def pieces(x, y, columns, PIECE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, PIECE)
    top = tl.full((PIECE,), -float("inf"), tl.float32)
    total = tl.zeros((PIECE,), tl.float32)
    for start in range(0, columns, PIECE):
        inside = start + column < columns
        value = tl.load(x + first + start + column, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, value)
        total = tl.where(inside, total * tl.exp(top - higher) + tl.exp(value - higher), total)
        top = higher
    highest = tl.max(top, 0)
    whole = tl.sum(tl.where(total > 0, total * tl.exp(top - highest), 0.0), 0)
    for start in range(0, columns, PIECE):
        inside = start + column < columns
        value = tl.load(x + first + start + column, mask=inside, other=0).to(tl.float32)
        tl.store(y + first + start + column, (tl.exp(value - highest) / whole).to(tl.bfloat16), mask=inside)


def run(x, y):
    rows, columns = x.shape
    pieces[(rows,)](x, y, columns, PIECE=1024, num_warps=4)
