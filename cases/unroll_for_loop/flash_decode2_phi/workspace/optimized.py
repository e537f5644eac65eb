"""Merge of split attention by tiles of blocks, for heads of any width.

Many rows are one warp's work each: all columns, padded to a power of two, so that a program has enough to load. Few
rows are divided into exact slices, 80 columns into five of 16, a program of four warps each. Each lane of blocks has
its own running maximum: nothing is reduced before the last tile, and tiles come through a pipeline.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

SLICE, TILE, WARPS, STAGES = (knob(f"FDP_{name}") for name in ("SLICE", "TILE", "WARPS", "STAGES"))

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

FEW = 4 * PROCESSORS
"""Fewer rows than this are divided by columns."""

MANY = 16 * PROCESSORS
"""With more programs than this, one warp each is enough to keep loads in flight, and no warp waits for another."""

NARROWEST, WIDEST = 16, 32
"""Columns of a slice where rows are divided."""

PER_WARP = 512
"""Elements of a tile: four loads of 16 bytes a thread, three tiles in flight."""

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-2e38)
"""A maximum to start from: below every element in use, and finite when multiplied by LOG2E."""


@triton.jit
def merge_slice(
    partial, lse, lengths, out, heads, blocks, block_seq, WIDTH: tl.constexpr, SLICE: tl.constexpr,
    SLICES: tl.constexpr, BLOCKS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """SLICE columns of one row, BLOCKS blocks at a time; the compiler drops masks of slices that are exact."""
    row = tl.program_id(0) // SLICES
    column = tl.program_id(0) % SLICES * SLICE + tl.arange(0, SLICE)
    inside = (column < WIDTH) | (SLICE * SLICES == WIDTH)
    count = tl.cdiv(tl.load(lengths + row // heads), block_seq)
    first = row.to(tl.int64) * blocks
    top = tl.full([BLOCKS], LOWEST, tl.float32)
    total = tl.zeros([BLOCKS], tl.float32)
    merged = tl.zeros([BLOCKS, SLICE], tl.float32)
    for start in tl.range(0, count, BLOCKS, num_stages=STAGES):
        block = start + tl.arange(0, BLOCKS)
        real = block < count
        value = tl.load(lse + first + block, mask=real, other=-float("inf"))
        at = (first + block)[:, None] * WIDTH + column[None, :]
        part = tl.load(partial + at, mask=real[:, None] & inside[None, :], other=0)
        higher = tl.maximum(top, value)
        keep, weight = tl.exp2((top - higher) * LOG2E), tl.exp2((value - higher) * LOG2E)
        merged = merged * keep[:, None] + part * weight[:, None]
        total = total * keep + weight
        top = higher
    share = tl.exp2((top - tl.max(top, 0)) * LOG2E)
    result = tl.sum(merged * share[:, None], 0) / tl.sum(total * share, 0)
    tl.store(out + row.to(tl.int64) * WIDTH + column, result.to(tl.float16), mask=inside)


def slice_of(rows: int, width: int) -> int:
    """All columns and more where rows are many, else the widest power of two that divides them."""
    if SLICE or rows >= FEW:
        return min(triton.next_power_of_2(width), SLICE or width * 2)
    exact = width & -width
    return WIDEST if exact < NARROWEST else min(exact, WIDEST)


def run(
    partial: torch.Tensor, lse: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, *, block_seq: int
) -> None:
    """partial float32 batch x heads x blocks x width, lse float32 without width, lengths int32; out float16."""
    batch, heads, blocks, width = partial.shape
    columns = slice_of(batch * heads, width)
    slices = triton.cdiv(width, columns)
    programs = batch * heads * slices
    warps = WARPS or (1 if programs > MANY else 4)
    together = min(triton.next_power_of_2(blocks), max(1, (TILE or warps * PER_WARP) // columns))
    merge_slice[(programs,)](
        partial, lse, lengths, out, heads, blocks, block_seq, width, columns, slices, together, STAGES or 3,
        num_warps=WARPS or max(1, together * columns // PER_WARP),
    )  # fmt: skip
