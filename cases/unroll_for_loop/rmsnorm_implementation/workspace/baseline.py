"""y = x / sqrt(mean(x^2) + eps) * weight over the last of three dimensions, float16, by strides.

A program is one row of one batch and walks its columns twice, summing squares in float32, then scaling and writing.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("RMS3D_BLOCK"), knob("RMS3D_WARPS")


@triton.jit
def rms_norm(x, weight, y, length, batch_stride, row_stride, hidden, eps, BLOCK: tl.constexpr):
    """One row."""
    batch, row = tl.program_id(0) // length, tl.program_id(0) % length
    first = batch.to(tl.int64) * batch_stride + row.to(tl.int64) * row_stride
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, hidden, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + column, mask=column < hidden, other=0).to(tl.float32)
        squares += value * value
    scale = tl.rsqrt(tl.sum(squares, 0) / hidden + eps)
    for start in range(0, hidden, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + column, mask=column < hidden, other=0).to(tl.float32)
        factor = tl.load(weight + column, mask=column < hidden, other=0).to(tl.float32)
        tl.store(y + first + column, (value * scale * factor).to(tl.float16), mask=column < hidden)


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    """x and y batch x length x hidden, weight hidden, all float16; x and y of the same strides."""
    batch, length, hidden = x.shape
    rms_norm[(batch * length,)](
        x, weight, y, length, x.stride(0), x.stride(1), hidden, eps, BLOCK, num_warps=WARPS
    )
