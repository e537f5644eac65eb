"""y = x / sqrt(mean(x^2) + eps) * weight along rows of float32: a row a program, walked twice in blocks of columns.

The first walk sums squares, lane by lane, the second scales and writes. Columns that do not exist are zero.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("RMS_BLOCK"), knob("RMS_WARPS")


@triton.jit
def rms_norm(x, weight, y, columns, eps, BLOCK: tl.constexpr):
    """One row."""
    first = tl.program_id(0).to(tl.int64) * columns
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + column, mask=column < columns, other=0)
        squares += value * value
    scale = tl.rsqrt(tl.sum(squares, 0) / columns + eps)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + column, mask=column < columns, other=0)
        factor = tl.load(weight + column, mask=column < columns, other=0)
        tl.store(y + first + column, value * scale * factor, mask=column < columns)


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    """x and y rows x columns, weight columns, all float32 and contiguous."""
    rows, columns = x.shape
    rms_norm[(rows,)](x, weight, y, columns, eps, BLOCK, num_warps=WARPS)
