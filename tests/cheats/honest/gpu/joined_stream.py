"""Works on a private stream that waits for the caller's and is waited for.

family: work-after-done
case: rows
entries: [1]
"""

import functools

import torch
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


@functools.cache
def side():
    return torch.cuda.Stream()


def run(x, y):
    here = torch.cuda.current_stream()
    side().wait_stream(here)
    with torch.cuda.stream(side()):
        softmax(x, y)
    here.wait_stream(side())
