"""y = softmax(x) along rows of bfloat16. The knobs are read once and become constants of the generated code.

Rows that do not exist are read as the last one and never written, so loads need a mask along columns only.
Elements that do not exist are -inf: they lose every maximum and add nothing to a sum.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

ALGORITHM, BLOCK, ROWS, LANES = (knob(f"SX_{name}") for name in ("ALGORITHM", "BLOCK", "ROWS", "LANES"))
WARPS, STAGES, WAVES, EXP2 = (knob(f"SX_{name}") for name in ("WARPS", "STAGES", "WAVES", "EXP2"))
READ, LAST, STORE = (
    "" if knob(name) == "normal" else knob(name) for name in ("SX_READ", "SX_LAST", "SX_STORE")
)

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

MAX_PER_THREAD = 128
"""Elements of a tile in one thread's registers; beyond it they spill and compilation takes minutes."""

MAX_SHARED = 220 * 1024
"""Bytes of shared memory that a pipeline of loads may take; a reduction needs a little more."""

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-2e38)
"""A maximum to start from: below every element in use, and finite when multiplied by LOG2E."""


def fits(width: int) -> bool:
    """Whether a tile of ROWS x width fits the registers, and what is loaded ahead of it the shared memory."""
    tile = ROWS * width
    return tile <= 32 * WARPS * MAX_PER_THREAD and 2 * tile * (STAGES - 1) <= MAX_SHARED


@triton.jit
def power(x, top, EXP2: tl.constexpr):
    """exp(x - top); as a power of two it is one multiply-add and one instruction of the special unit.

    The multiply-add rounds top * LOG2E alone, so all elements are off by the same small factor, at x = top too.
    """
    return tl.exp2(x * LOG2E - top * LOG2E) if EXP2 else tl.exp(x - top)


@triton.jit
def rescaled(total, top, higher, EXP2: tl.constexpr):
    """total * exp(top - higher), exactly total where the maximum stays: it is rescaled hundreds of times."""
    return total * (tl.exp2((top - higher) * LOG2E) if EXP2 else tl.exp(top - higher))


@triton.jit
def whole_rows(
    x, y, rows, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr, EXP2: tl.constexpr,
    LAST: tl.constexpr, STORE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each tile of ROWS whole rows is read once and stays in registers until it is written."""
    column = tl.arange(0, WIDTH)[None, :]
    real = column < columns
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        at = tl.minimum(row, rows - 1).to(tl.int64) * columns + column
        value = tl.load(x + at, mask=real, other=-float("inf"), eviction_policy=LAST).to(tl.float32)
        powers = power(value, tl.max(value, 1, keep_dims=True), EXP2)
        result = powers * (1 / tl.sum(powers, 1, keep_dims=True))
        tl.store(y + at, result.to(tl.bfloat16), mask=real & (row < rows), eviction_policy=STORE)


@triton.jit
def row_maximum(
    x, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
    READ: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Maximum of each row, ROWS x 1. With LANES every lane keeps its own until the end."""
    top = tl.full([ROWS, BLOCK if LANES else 1], LOWEST, tl.float32)
    for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
        column = start + tl.arange(0, BLOCK)[None, :]
        value = tl.load(x + column, mask=column < columns, other=-float("inf"), eviction_policy=READ)
        value = value.to(tl.float32)
        top = tl.maximum(top, value if LANES else tl.max(value, 1, keep_dims=True))
    return tl.max(top, 1, keep_dims=True)


@triton.jit
def row_sum(
    x, top, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr, EXP2: tl.constexpr,
    READ: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum of exp(x - top) over each row, ROWS x 1."""
    total = tl.zeros([ROWS, BLOCK if LANES else 1], tl.float32)
    for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
        column = start + tl.arange(0, BLOCK)[None, :]
        value = tl.load(x + column, mask=column < columns, other=-float("inf"), eviction_policy=READ)
        powers = power(value.to(tl.float32), top, EXP2)
        total += powers if LANES else tl.sum(powers, 1, keep_dims=True)
    return tl.sum(total, 1, keep_dims=True)


@triton.jit
def row_maximum_and_sum(
    x, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr, EXP2: tl.constexpr,
    READ: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Both in one pass: whenever the running maximum moves, the running sum is rescaled to it."""
    top = tl.full([ROWS, BLOCK if LANES else 1], LOWEST, tl.float32)
    total = tl.zeros([ROWS, BLOCK if LANES else 1], tl.float32)
    for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
        column = start + tl.arange(0, BLOCK)[None, :]
        value = tl.load(x + column, mask=column < columns, other=-float("inf"), eviction_policy=READ)
        value = value.to(tl.float32)
        higher = tl.maximum(top, value if LANES else tl.max(value, 1, keep_dims=True))
        powers = power(value, higher, EXP2)
        total = rescaled(total, top, higher, EXP2) + (powers if LANES else tl.sum(powers, 1, keep_dims=True))
        top = higher
    highest = tl.max(top, 1, keep_dims=True)
    return highest, tl.sum(rescaled(total, top, highest, EXP2), 1, keep_dims=True)


@triton.jit
def looped_rows(
    x, y, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, ONLINE: tl.constexpr, LANES: tl.constexpr,
    EXP2: tl.constexpr, READ: tl.constexpr, LAST: tl.constexpr, STORE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each tile of ROWS rows is walked in steps of BLOCK columns: twice when ONLINE, else three times."""
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=1):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        first = tl.minimum(row, rows - 1).to(tl.int64) * columns
        if ONLINE:
            top, total = row_maximum_and_sum(x + first, columns, ROWS, BLOCK, LANES, EXP2, READ, STAGES)
        else:
            top = row_maximum(x + first, columns, ROWS, BLOCK, LANES, READ, STAGES)
            total = row_sum(x + first, top, columns, ROWS, BLOCK, LANES, EXP2, READ, STAGES)
        factor = 1 / total
        for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
            column = start + tl.arange(0, BLOCK)[None, :]
            real = column < columns
            value = tl.load(x + first + column, mask=real, other=-float("inf"), eviction_policy=LAST)
            result = power(value.to(tl.float32), top, EXP2) * factor
            tl.store(
                y + first + column, result.to(tl.bfloat16), mask=real & (row < rows), eviction_policy=STORE
            )


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """y = softmax(x) along rows; both rows x columns, contiguous."""
    rows, columns = x.shape
    tiles = triton.cdiv(rows, ROWS)
    grid = (min(tiles, WAVES * PROCESSORS) if WAVES else tiles,)
    width = triton.next_power_of_2(columns)
    if ALGORITHM == "whole" and fits(width):
        whole_rows[grid](
            x, y, rows, columns, ROWS, width, EXP2, LAST, STORE, STAGES, num_warps=WARPS
        )  # fmt: skip
    else:
        online = ALGORITHM != "passes"
        looped_rows[grid](
            x, y, rows, columns, ROWS, BLOCK, online, LANES, EXP2, READ, LAST, STORE, STAGES, num_warps=WARPS
        )  # fmt: skip
