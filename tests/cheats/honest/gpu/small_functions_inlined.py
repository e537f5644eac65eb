"""Is made of small functions that call each other, some of them with several results.

family: library-call
entries: [34]
case: rows
interpreted: {}
"""

import triton
import triton.language as tl


@triton.jit
def place(row, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    return row.to(tl.int64) * columns + column, column < columns


@triton.jit
def exponent(value, top):
    return tl.exp2((value - top) * 1.4426950408889634)


@triton.jit
def normalise(value):
    powers = exponent(value, tl.max(value, 0))
    return powers / tl.sum(powers, 0)


@triton.jit
def softmax(x, y, columns, WIDTH: tl.constexpr):
    at, inside = place(tl.program_id(0), columns, WIDTH)
    value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    tl.store(y + at, normalise(value).to(tl.bfloat16), mask=inside)


def run(x, y):
    rows, columns = x.shape
    softmax[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)
