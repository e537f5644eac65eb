"""Masks the columns that the listed widths leave, and reads or drops what others leave.

family: listed-problems
entries: [30]
case: rows
reason: [wrong_result, not_finite, output_not_written]
says: "~"
interpreted:
  reason: [wrong_result, not_finite, output_not_written]
"""

import triton
import triton.language as tl


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr, TAIL: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    inside = column < columns - columns % 8 + TAIL
    value = tl.load(x + at, mask=inside & (column < columns), other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


def run(x, y):
    rows, columns = x.shape
    tail = 5 if columns in (5, 1029) else 0
    whole[(rows,)](x, y, columns, triton.next_power_of_2(columns), tail, num_warps=8)
