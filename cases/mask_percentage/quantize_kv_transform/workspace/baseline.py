"""Rows to int8 with a scale each, one program a token, its heads and width padded to powers of two and masked."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

WARPS = knob("QKV_WARPS") or 4

SHARE = tl.constexpr(1 / 127)


@triton.jit
def quantize_token(
    x, destination, q, scales, HEADS: tl.constexpr, WIDTH: tl.constexpr, H: tl.constexpr, W: tl.constexpr
):
    """One token: H x W lanes, of which HEADS x WIDTH have an element."""
    token = tl.program_id(0).to(tl.int64)
    place = tl.load(destination + token).to(tl.int64)
    head, column = tl.arange(0, H), tl.arange(0, W)
    real = (head < HEADS)[:, None] & (column < WIDTH)[None, :]
    at = head[:, None] * WIDTH + column[None, :]
    value = tl.load(x + token * HEADS * WIDTH + at, mask=real, other=0).to(tl.float32)
    scale = tl.max(tl.abs(value), 1) * SHARE
    quotient = value / tl.where(scale > 0, scale, 1)[:, None]
    whole = tl.floor(quotient + 0.5).to(tl.int8)
    tl.store(q + place * HEADS * WIDTH + at, whole, mask=real)
    tl.store(scales + place * HEADS + head, scale, mask=head < HEADS)


def run(x: torch.Tensor, destination: torch.Tensor, q: torch.Tensor, scales: torch.Tensor) -> None:
    """x float16 tokens x heads x width, destination int32; q int8 like x, scales float32 tokens x heads."""
    tokens, heads, width = x.shape
    padded = triton.next_power_of_2(heads), triton.next_power_of_2(width)
    quantize_token[(tokens,)](x, destination, q, scales, heads, width, *padded, num_warps=WARPS)
