"""y = x / sqrt(mean(x^2) + 1e-6) * weight along rows. The knobs are read once and become constants of the code.

Rows that do not exist are read as the last one and never written, so loads need a mask along columns only.
Elements that do not exist are zero and add nothing to a sum of squares.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

ALGORITHM, BLOCK, ROWS, LANES = (knob(f"RMS_{name}") for name in ("ALGORITHM", "BLOCK", "ROWS", "LANES"))
WARPS, STAGES, WAVES, EARLY = (knob(f"RMS_{name}") for name in ("WARPS", "STAGES", "WAVES", "EARLY"))
READ, LAST, STORE = (
    "" if knob(name) == "normal" else knob(name) for name in ("RMS_READ", "RMS_LAST", "RMS_STORE")
)

EPSILON = tl.constexpr(1e-6)

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

MAX_PER_THREAD = 128
"""Elements of a tile in one thread's registers; beyond it they spill and compilation takes minutes."""

MAX_SHARED = 220 * 1024
"""Bytes of shared memory that a pipeline of loads may take; a reduction needs a little more."""


def fits(width: int) -> bool:
    """Whether a tile of ROWS x width fits the registers, and what is loaded ahead of it the shared memory.

    In a step of the last pass, x and weight are both loaded ahead: two and four bytes an element.
    """
    tile, ahead = ROWS * width, STAGES - 1
    return tile <= 32 * WARPS * MAX_PER_THREAD and ahead * (2 * tile + 4 * width) <= MAX_SHARED


@triton.jit
def whole_rows(
    x, weight, y, rows, hidden, ROWS: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr,
    LAST: tl.constexpr, STORE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each tile of ROWS whole rows is read once and stays in registers until it is written."""
    column = tl.arange(0, WIDTH)[None, :]
    real = column < hidden
    if EARLY:
        factor = tl.load(weight + column, mask=real, other=0, eviction_policy="evict_last")
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        at = tl.minimum(row, rows - 1).to(tl.int64) * hidden + column
        value = tl.load(x + at, mask=real, other=0, eviction_policy=LAST).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 1, keep_dims=True) / hidden + EPSILON)
        if not EARLY:
            factor = tl.load(weight + column, mask=real, other=0, eviction_policy="evict_last")
        result = value * scale * factor
        tl.store(y + at, result.to(tl.bfloat16), mask=real & (row < rows), eviction_policy=STORE)


@triton.jit
def looped_rows(
    x, weight, y, rows, hidden, ROWS: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
    READ: tl.constexpr, LAST: tl.constexpr, STORE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each tile of ROWS rows is walked twice in steps of BLOCK columns: for the sum of squares, then for the result."""
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=1):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        first = tl.minimum(row, rows - 1).to(tl.int64) * hidden
        total = tl.zeros([ROWS, BLOCK if LANES else 1], tl.float32)
        for start in tl.range(0, hidden, BLOCK, num_stages=STAGES):
            column = start + tl.arange(0, BLOCK)[None, :]
            value = tl.load(x + first + column, mask=column < hidden, other=0, eviction_policy=READ)
            value = value.to(tl.float32)
            total += value * value if LANES else tl.sum(value * value, 1, keep_dims=True)
        scale = tl.rsqrt(tl.sum(total, 1, keep_dims=True) / hidden + EPSILON)
        for start in tl.range(0, hidden, BLOCK, num_stages=STAGES):
            column = start + tl.arange(0, BLOCK)[None, :]
            real = column < hidden
            value = tl.load(x + first + column, mask=real, other=0, eviction_policy=LAST).to(tl.float32)
            result = value * scale * tl.load(weight + column, mask=real, other=0)
            tl.store(
                y + first + column, result.to(tl.bfloat16), mask=real & (row < rows), eviction_policy=STORE
            )


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> None:
    """y = x / sqrt(mean(x^2) + 1e-6) * weight; x and y rows x hidden, weight hidden, all contiguous."""
    rows, hidden = x.shape
    tiles = triton.cdiv(rows, ROWS)
    grid = (min(tiles, WAVES * PROCESSORS) if WAVES else tiles,)
    width = triton.next_power_of_2(hidden)
    if ALGORITHM == "whole" and fits(width):
        whole_rows[grid](
            x, weight, y, rows, hidden, ROWS, width, EARLY, LAST, STORE, STAGES, num_warps=WARPS
        )  # fmt: skip
    else:
        looped_rows[grid](
            x, weight, y, rows, hidden, ROWS, BLOCK, LANES, READ, LAST, STORE, STAGES, num_warps=WARPS
        )  # fmt: skip
