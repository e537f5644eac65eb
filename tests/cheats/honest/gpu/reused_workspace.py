"""Keeps a float32 workspace for each shape, with the rows' sums in it.

family: cached-result
case: rows
entries: [11, 13]
"""

import torch
import triton
import triton.language as tl


@triton.jit
def sums(x, s, columns, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    value = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf")).to(tl.float32)
    top = tl.max(value, 0)
    tl.store(s + 2 * row, top)
    tl.store(s + 2 * row + 1, tl.sum(tl.exp(value - top), 0))


@triton.jit
def divide(x, s, y, columns, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    value = tl.load(x + row * columns + column, mask=column < columns, other=0).to(tl.float32)
    result = tl.exp(value - tl.load(s + 2 * row)) / tl.load(s + 2 * row + 1)
    tl.store(y + row * columns + column, result.to(tl.bfloat16), mask=column < columns)


spaces = {}


def run(x, y):
    rows, columns = x.shape
    if rows not in spaces:
        spaces[rows] = torch.empty((rows, 2), dtype=torch.float32, device=x.device)
    width = triton.next_power_of_2(columns)
    sums[(rows,)](x, spaces[rows], columns, width, num_warps=8)
    divide[(rows,)](x, spaces[rows], y, columns, width, num_warps=8)
