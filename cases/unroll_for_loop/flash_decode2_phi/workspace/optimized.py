"""Merge of split attention, heads of any width.

The largest lse of a row is found first, so that no sum is ever rescaled, while the first blocks are on their way
already. A block's columns are taken as a power of two and what is left: several blocks fill a warp's loads, and no lane
is idle at width 80 or 96. A tile is asked for as soon as the one before it has left its registers. Many rows are one
warp's work each; where rows are few, each is divided into parts, whose results are partial results again and are merged
by a second, small launch of the same kernel.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCKS, PART, WARPS = (knob(f"FDP_{name}") for name in ("BLOCKS", "PART", "WARPS"))

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

FEW = 16 * PROCESSORS
"""With fewer rows than this, several warps share one, unless it is divided."""

FEWEST = 4 * PROCESSORS
"""With fewer than this, rows are divided."""

DIVIDED = 128
"""Blocks of a part."""

MAX_WARPS = 8

LANES_PER_WARP = 128
"""float32 elements of a load of 16 bytes by each thread of a warp."""

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-2e38)
"""A maximum to start from: below every element in use, and finite when multiplied by LOG2E."""


@triton.jit
def load_blocks(partial, lse, block, end, column, WIDTH: tl.constexpr, WHOLE: tl.constexpr):
    """lse of [GROUPS, BLOCKS] blocks of a row, and their columns: -inf and zeros from `end` on."""
    real = block < end
    inside = real[:, :, None] if WHOLE else real[:, :, None] & (column < WIDTH)[None, None, :]
    value = tl.load(lse + block, mask=real, other=-float("inf"))
    return value, tl.load(partial + (block[:, :, None] * WIDTH + column[None, None, :]), mask=inside, other=0)


@triton.jit
def weigh(value, piece, top):
    """Sums over the blocks of each group, of their weights and of what they weigh."""
    weight = tl.exp2((value - top) * LOG2E)
    return tl.sum(weight, 1), tl.sum(piece * weight[:, :, None], 1)


@triton.jit
def find_top(lse, start, end, CHUNK: tl.constexpr):
    tops = tl.full([CHUNK], LOWEST, tl.float32)
    for step in range(start, end, CHUNK):
        block = step + tl.arange(0, CHUNK)
        tops = tl.maximum(tops, tl.load(lse + block, mask=block < end, other=-float("inf")))
    return tl.max(tops, 0)


@triton.jit
def merge_part(
    partial, lse, lengths, out, out_lse, heads, blocks, block_seq, part, parts, WIDTH: tl.constexpr, HEAD: tl.constexpr,
    TAIL: tl.constexpr, GROUPS: tl.constexpr, TAILS: tl.constexpr, BLOCKS: tl.constexpr, CHUNK: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    """`part` blocks of one row, BLOCKS at a time: their first HEAD columns in GROUPS, the TAIL of them in TAILS."""
    row = tl.program_id(0) // parts
    start = tl.program_id(0) % parts * part
    end = tl.minimum(start + part, tl.cdiv(tl.load(lengths + row // heads), block_seq))
    if start >= end:
        return
    WHOLE: tl.constexpr = HEAD + TAIL == WIDTH
    partial += row.to(tl.int64) * blocks * WIDTH
    lse += row.to(tl.int64) * blocks
    column = tl.arange(0, HEAD)
    each = tl.arange(0, BLOCKS // GROUPS)[None, :] * GROUPS + tl.arange(0, GROUPS)[:, None]
    total = tl.zeros([GROUPS], tl.float32)
    merged = tl.zeros([GROUPS, HEAD], tl.float32)
    if TAIL > 0:
        last = HEAD + tl.arange(0, TAIL)
        each_tail = tl.arange(0, BLOCKS // TAILS)[None, :] * TAILS + tl.arange(0, TAILS)[:, None]
        tail = tl.zeros([TAILS, TAIL], tl.float32)
    value, piece = load_blocks(partial, lse, start + each, end, column, WIDTH, True)
    if TAIL > 0:
        tail_value, tail_piece = load_blocks(partial, lse, start + each_tail, end, last, WIDTH, WHOLE)
    top = find_top(lse, start, end, CHUNK)
    for step in range(start + BLOCKS, end + BLOCKS, BLOCKS):
        weight, sums = weigh(value, piece, top)
        total += weight
        merged += sums
        value, piece = load_blocks(partial, lse, step + each, end, column, WIDTH, True)
        if TAIL > 0:
            tail += weigh(tail_value, tail_piece, top)[1]
            tail_value, tail_piece = load_blocks(partial, lse, step + each_tail, end, last, WIDTH, WHOLE)
    whole = tl.sum(total, 0)
    to = out + (row if LAST else tl.program_id(0)).to(tl.int64) * WIDTH
    tl.store(to + column, (tl.sum(merged, 0) / whole).to(out.dtype.element_ty))
    if TAIL > 0:
        tl.store(to + last, (tl.sum(tail, 0) / whole).to(out.dtype.element_ty), mask=last < WIDTH)
    if not LAST:
        tl.store(out_lse + tl.program_id(0), top + tl.log2(whole) / LOG2E)


def power_below(width: int) -> int:
    """The largest power of two that is no larger."""
    return 1 << width.bit_length() - 1


def merge(
    partial: torch.Tensor, lse: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, block_seq: int
) -> None:
    """out float16 of rows that are divided if they are few."""
    batch, heads, blocks, width = partial.shape
    rows, head = batch * heads, power_below(width)
    tail = triton.next_power_of_2(width - head) if width > head else 0
    part = PART or DIVIDED
    divided = rows < FEWEST and blocks > part
    parts = triton.cdiv(blocks, part) if divided else 1
    most = triton.next_power_of_2(part if divided else blocks)
    warps = WARPS or (1 if divided or rows >= FEW else MAX_WARPS)
    lanes = LANES_PER_WARP * warps
    together = min(BLOCKS or max(8, 4 * lanes // head), most)
    groups, tails = (min(together, max(1, lanes // wide)) for wide in (head, tail or lanes))
    found, found_lse = out, lse
    if divided:
        found = torch.empty((batch, heads, parts, width), dtype=torch.float32, device=out.device)
        found_lse = torch.empty((batch, heads, parts), dtype=torch.float32, device=out.device)
    merge_part[(rows * parts,)](
        partial, lse, lengths, found, found_lse, heads, blocks, block_seq, part if divided else blocks, parts,
        width, head, tail, groups, tails, together, min(most, DIVIDED), not divided, num_warps=warps,
    )  # fmt: skip
    if divided:
        merge(found, found_lse, lengths, out, block_seq * part)


def run(
    partial: torch.Tensor, lse: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, *, block_seq: int
) -> None:
    """partial float32 batch x heads x blocks x width, lse float32 without width, lengths int32; out float16."""
    merge(partial, lse, lengths, out, block_seq)
