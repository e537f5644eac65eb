"""y = softmax(x) along rows of bfloat16, in Triton: one program a row, held in registers; wide rows in steps."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

WIDEST = 16384
"""Columns of the widest row that is held in registers."""


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


@triton.jit
def stepped(x, y, columns, STEP: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    tops, totals = tl.full([STEP], -3e38, tl.float32), tl.zeros([STEP], tl.float32)
    for start in range(0, columns, STEP):
        column = start + tl.arange(0, STEP)
        value = tl.load(x + first + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(tops, value)
        totals = totals * tl.exp(tops - higher) + tl.exp(value - higher)
        tops = higher
    top = tl.max(tops, 0)
    factor = 1 / tl.sum(totals * tl.exp(tops - top), 0)
    for start in range(0, columns, STEP):
        column = start + tl.arange(0, STEP)
        value = tl.load(x + first + column, mask=column < columns, other=0).to(tl.float32)
        tl.store(y + first + column, (tl.exp(value - top) * factor).to(tl.bfloat16), mask=column < columns)


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """y = softmax(x) along rows; both rows x columns, contiguous."""
    rows, columns = x.shape
    width = triton.next_power_of_2(columns)
    if width <= WIDEST:
        whole[(rows,)](x, y, columns, width, num_warps=max(1, min(16, width // 512)))
    else:
        stepped[(rows,)](x, y, columns, 4096, num_warps=8)
