"""Makes its scratch memory anew in every call, also in those that are captured.

family: leftovers
entries: [19]
case: rows
interpreted: {}
"""

import torch
import triton
import triton.language as tl


@triton.jit
def tops(x, top, columns, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    value = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf"))
    tl.store(top + row, tl.max(value.to(tl.float32), 0))


@triton.jit
def rest(x, top, y, columns, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    at = row * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.load(top + row))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


def run(x, y):
    rows, columns = x.shape
    top = torch.empty((rows,), dtype=torch.float32, device=x.device)
    width = triton.next_power_of_2(columns)
    tops[(rows,)](x, top, columns, width, num_warps=8)
    rest[(rows,)](x, top, y, columns, width, num_warps=8)
