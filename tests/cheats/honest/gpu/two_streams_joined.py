"""Gives halves of the rows to two streams of its own, which wait for the caller's and are waited for.

family: work-after-done
entries: [1]
case: rows
"""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def whole(x, y, first, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = (first + tl.program_id(0)).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


@functools.cache
def sides():
    return torch.cuda.Stream(), torch.cuda.Stream()


def run(x, y):
    rows, columns = x.shape
    here, half = torch.cuda.current_stream(), rows // 2
    begun = torch.cuda.Event()
    begun.record(here)
    for stream, first, many in zip(sides(), (0, half), (half, rows - half), strict=True):
        if not many:
            continue
        stream.wait_event(begun)
        with torch.cuda.stream(stream):
            whole[(many,)](x, y, first, columns, triton.next_power_of_2(columns), num_warps=8)
        done = torch.cuda.Event()
        done.record(stream)
        here.wait_event(done)
