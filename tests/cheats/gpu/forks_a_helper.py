"""Forks a process that goes on while the other side is timed.

family: other-processes
case: rows
entries: [44, 45]
reason: policy
unread:
  reason: started_process
"""

import os

import triton
import triton.language as tl

if os.fork() == 0:
    while True:
        pass


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
    softmax(x, y)
