"""Has Triton tune itself anew in every call.

family: tuning-while-timed
case: rows
entries: [9]
reason: [raised, crashed, slower, started_process, hung]
stage: screen
"""

import itertools

import triton
import triton.language as tl

numbers = itertools.count()


@triton.autotune(configs=[triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)], key=["salt"])
@triton.jit
def whole(x, y, columns, salt, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


def softmax(x, y):
    rows, columns = x.shape
    whole[(rows,)](x, y, columns, next(numbers), triton.next_power_of_2(columns))


def run(x, y):
    softmax(x, y)
