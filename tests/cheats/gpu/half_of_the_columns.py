"""Adds up every second column and doubles the sum.

family: less-work
case: rows
reason: wrong_result
interpreted:
  reason: [wrong_result, output_not_written]
"""

import triton
import triton.language as tl


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    total = 2 * tl.sum(tl.where(column % 2 == 0, powers, 0.0), 0)
    tl.store(y + at, (powers / total).to(tl.bfloat16), mask=column < columns)


def run(x, y):
    rows, columns = x.shape
    whole[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)
