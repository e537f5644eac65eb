"""y = (x - mean) / sqrt(variance + eps) * weight[head], float16: a program is one head of one batch entry.

It walks its elements three times in blocks: for the mean, for the variance about it, and for the result. The mean is
summed in float64: a float32 sum of millions of like values has no digits left for their differences.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("LN_BLOCK"), knob("LN_WARPS")


@triton.jit
def layer_norm(
    x, weight, y, batch_stride, head_stride, weight_stride, size, eps, BLOCK: tl.constexpr
):  # fmt: skip
    """One head of one batch entry."""
    head = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0).to(tl.int64) * batch_stride + head * head_stride
    weight += head * weight_stride
    total = tl.zeros([BLOCK], tl.float64)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + first + at, mask=at < size, other=0).to(tl.float64)
    mean = (tl.sum(total, 0) / size).to(tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + at, mask=at < size, other=0).to(tl.float32)
        centred = tl.where(at < size, value - mean, 0)
        squares += centred * centred
    scale = tl.rsqrt(tl.sum(squares, 0) / size + eps)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + at, mask=at < size, other=0).to(tl.float32)
        factor = tl.load(weight + at, mask=at < size, other=0).to(tl.float32)
        tl.store(y + first + at, ((value - mean) * scale * factor).to(tl.float16), mask=at < size)


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    """x and y batch x heads x size of the same strides, weight heads x size, all float16."""
    batch, heads, size = x.shape
    layer_norm[(batch, heads)](
        x, weight, y, x.stride(0), x.stride(1), weight.stride(0), size, eps, BLOCK, num_warps=WARPS
    )  # fmt: skip
