"""Merge of split attention for heads of any width, padded to a power of two; masked lanes load nothing.

A tile has several blocks of a row in each thread, so that a running maximum and its rescaling are paid once a tile, and
sums over blocks never leave their thread. All of a tile's loads are under way at once. Many rows are one warp's work
each; where rows are few, each is divided into parts, whose results are partial results again and are merged by a
second, small launch of the same kernel.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCKS, PART, WARPS, STAGES = (knob(f"FDP_{name}") for name in ("BLOCKS", "PART", "WARPS", "STAGES"))

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

FEW = 16 * PROCESSORS
"""With fewer rows than this, several warps share one, unless it is divided."""

FEWEST = 4 * PROCESSORS
"""With fewer than this, rows are divided."""

DIVIDED = 128
"""Blocks of a part."""

TOGETHER, MOST_WARPS = 8, 8
"""Blocks of a tile in each thread: 128 bytes of loads in 64 registers, with 32 programs of one warp resident."""

LANES_PER_WARP = tl.constexpr(128)
"""float32 elements of a load of 16 bytes by each thread of a warp."""

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-2e38)
"""A maximum to start from: below every element in use, and finite when multiplied by LOG2E."""


@triton.jit
def merge_part(
    partial, lse, lengths, out, out_lse, heads, blocks, block_seq, part, parts, WIDTH: tl.constexpr,
    LANES: tl.constexpr, GROUPS: tl.constexpr, BLOCKS: tl.constexpr, STAGES: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """`part` blocks of one row, GROUPS x BLOCKS at a time; each group has its own running maximum."""
    row = tl.program_id(0) // parts
    start = tl.program_id(0) % parts * part
    end = tl.minimum(start + part, tl.cdiv(tl.load(lengths + row // heads), block_seq))
    if start >= end:
        return
    column = tl.arange(0, LANES)
    inside = (column < WIDTH) | (LANES == WIDTH)
    offset = tl.arange(0, BLOCKS)[None, :] * GROUPS + tl.arange(0, GROUPS)[:, None]
    first = row.to(tl.int64) * blocks
    top = tl.full([GROUPS], LOWEST, tl.float32)
    total = tl.zeros([GROUPS], tl.float32)
    merged = tl.zeros([GROUPS, LANES], tl.float32)
    for step in tl.range(start, end, BLOCKS * GROUPS, num_stages=STAGES):
        block = step + offset
        real = block < end
        value = tl.load(lse + first + block, mask=real, other=-float("inf"))
        at = (first + block)[:, :, None] * WIDTH + column[None, None, :]
        piece = tl.load(partial + at, mask=real[:, :, None] & inside[None, None, :], other=0)
        higher = tl.maximum(top, tl.max(value, 1))
        keep, weight = tl.exp2((top - higher) * LOG2E), tl.exp2((value - higher[:, None]) * LOG2E)
        merged = merged * keep[:, None] + tl.sum(piece * weight[:, :, None], 1)
        total = total * keep + tl.sum(weight, 1)
        top = higher
    highest = tl.max(top, 0)
    share = tl.exp2((top - highest) * LOG2E)
    whole = tl.sum(total * share, 0)
    result = tl.sum(merged * share[:, None], 0) / whole
    if LAST:
        tl.store(out + row.to(tl.int64) * WIDTH + column, result.to(tl.float16), mask=inside)
    else:
        tl.store(out + tl.program_id(0).to(tl.int64) * WIDTH + column, result, mask=inside)
        tl.store(out_lse + tl.program_id(0), highest + tl.log2(whole) / LOG2E)


def merge(
    partial: torch.Tensor, lse: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, block_seq: int
) -> None:
    """out float16 of rows that are divided if they are few."""
    batch, heads, blocks, width = partial.shape
    rows, lanes = batch * heads, triton.next_power_of_2(width)
    part = PART or DIVIDED
    divided = rows < FEWEST and blocks > part
    parts = triton.cdiv(blocks, part) if divided else 1
    warps = WARPS or (1 if divided or rows >= FEW else MOST_WARPS)
    groups = warps * max(1, LANES_PER_WARP.value // lanes)
    together = min(
        BLOCKS or TOGETHER, triton.next_power_of_2(triton.cdiv(part if divided else blocks, groups))
    )
    found, found_lse = out, lse
    if divided:
        found = torch.empty((batch, heads, parts, width), dtype=torch.float32, device=out.device)
        found_lse = torch.empty((batch, heads, parts), dtype=torch.float32, device=out.device)
    merge_part[(rows * parts,)](
        partial, lse, lengths, found, found_lse, heads, blocks, block_seq, part if divided else blocks, parts,
        width, lanes, groups, together, STAGES or 1, not divided, num_warps=warps,
    )  # fmt: skip
    if divided:
        merge(found, found_lse, lengths, out, block_seq * part)


def run(
    partial: torch.Tensor, lse: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, *, block_seq: int
) -> None:
    """partial float32 batch x heads x blocks x width, lse float32 without width, lengths int32; out float16."""
    merge(partial, lse, lengths, out, block_seq)
