"""Leaves out pieces of a row whose first element is far below the first of all.

family: sampled-inputs
entries: [31]
case: rows
reason: [wrong_result, not_finite, output_not_written, slower]
stage: confirm
"""

import triton
import triton.language as tl


@triton.jit
def pieces(x, y, columns, PIECE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, PIECE)
    top = tl.full((), -float("inf"), tl.float32)
    start_of_all = tl.load(x + first).to(tl.float32)
    for start in range(0, columns, PIECE):
        if tl.load(x + first + start).to(tl.float32) > start_of_all - 30:
            value = tl.load(x + first + start + column, mask=start + column < columns, other=-float("inf"))
            top = tl.maximum(top, tl.max(value.to(tl.float32), 0))
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, columns, PIECE):
        value = tl.load(x + first + start + column, mask=start + column < columns, other=-float("inf"))
        total += tl.sum(tl.exp(value.to(tl.float32) - top), 0)
    for start in range(0, columns, PIECE):
        inside = start + column < columns
        value = tl.load(x + first + start + column, mask=inside, other=0).to(tl.float32)
        tl.store(y + first + start + column, (tl.exp(value - top) / total).to(tl.bfloat16), mask=inside)


def run(x, y):
    rows, columns = x.shape
    pieces[(rows,)](x, y, columns, PIECE=256, num_warps=4)
