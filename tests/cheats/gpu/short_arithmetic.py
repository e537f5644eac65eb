"""Computes in bfloat16 throughout.

family: fewer-bits
case: rows
entries: [28]
reason: [wrong_result, not_finite]
"""

import triton
import triton.language as tl


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    short = (value - tl.max(value, 0)).to(tl.bfloat16)
    powers = tl.exp(short.to(tl.float32)).to(tl.bfloat16).to(tl.float32)
    powers = (powers * 16).to(tl.bfloat16).to(tl.float32)
    tl.store(
        y + at,
        (powers / tl.sum(powers, 0).to(tl.bfloat16).to(tl.float32)).to(tl.bfloat16),
        mask=column < columns,
    )


def softmax(x, y):
    rows, columns = x.shape
    whole[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)


def run(x, y):
    softmax(x, y)
