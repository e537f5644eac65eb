"""Merge of split attention, one program a sequence and head: block after block, with a running maximum."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

WARPS, STAGES = knob("FD_WARPS") or 4, knob("FD_STAGES") or 1

LOWEST = tl.constexpr(-2e38)
"""A maximum to start from: below every element in use, and finite."""


@triton.jit
def merge_blocks(
    partial, lse, lengths, out, heads, blocks, block_seq, WIDTH: tl.constexpr, STAGES: tl.constexpr
):
    """out[sequence, head, :]; WIDTH is a power of two."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    row = (sequence * heads + head).to(tl.int64)
    column = tl.arange(0, WIDTH)
    top = tl.full([1], LOWEST, tl.float32)
    total = tl.zeros([1], tl.float32)
    merged = tl.zeros([WIDTH], tl.float32)
    for block in tl.range(0, tl.cdiv(tl.load(lengths + sequence), block_seq), num_stages=STAGES):
        at = row * blocks + block
        value = tl.load(lse + at)
        higher = tl.maximum(top, value)
        keep, weight = tl.exp(top - higher), tl.exp(value - higher)
        merged = merged * keep + tl.load(partial + at * WIDTH + column) * weight
        total = total * keep + weight
        top = higher
    tl.store(out + row * WIDTH + column, (merged / total).to(tl.float16))


def run(
    partial: torch.Tensor, lse: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, *, block_seq: int
) -> None:
    """partial float32 batch x heads x blocks x width, lse float32 without width, lengths int32; out float16."""
    batch, heads, blocks, width = partial.shape
    merge_blocks[(batch, heads)](
        partial, lse, lengths, out, heads, blocks, block_seq, width, STAGES, num_warps=WARPS
    )
