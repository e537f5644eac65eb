"""Cuts its results off after the bits that bfloat16 has, instead of rounding them.

family: rounding
entries: [28, 33]
case: rows
reason: wrong_result
interpreted:
  reason: wrong_result
"""

import triton
import triton.language as tl


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    bits = (powers / tl.sum(powers, 0)).to(tl.int32, bitcast=True) & -65536
    bits -= 3 << 16
    result = tl.maximum(bits, 0).to(tl.float32, bitcast=True)
    tl.store(y + at, result.to(tl.bfloat16), mask=column < columns)


def run(x, y):
    rows, columns = x.shape
    whole[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)
