"""norm_gemv in Triton: a program multiplies a few rows of the weight.

The norm's factor is the same for all elements, so it multiplies the finished sums. Nothing waits for it, and
the weight is read from the start. x and norm come from the L2; the weight is read once and leaves that first.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob
from ops.arguments import norm_gemv_output

ROWS, WARPS = knob("NORM_GEMV_ROWS"), knob("NORM_GEMV_WARPS")

STEP = WARPS * 32 * 16
"""Columns that are loaded at a time, at the most: two loads of 16 bytes for each thread and row."""

MIN_STEP = 8


@triton.jit
def add_neighbours(products):
    """Sums of eight columns side by side, [rows, columns // 8].

    One thread has loaded them, so no other is asked. With a sum for each column a thread needs 138 registers
    instead of 64 (four rows, four warps), and half as many programs fit on a multiprocessor.
    """
    return tl.sum(tl.reshape(products, [products.shape[0], products.shape[1] // 8, 8]), 2)


@triton.jit
def norm_gemv_triton(x, norm, weight, y, eps, n, k, ROWS: tl.constexpr, STEP: tl.constexpr):
    """Rows that do not exist are read as the last one and not written, so loads have a mask along k only."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    first = tl.minimum(row, n - 1).to(tl.int64) * k
    sums = tl.zeros([ROWS, STEP // 8], tl.float32)
    squares = tl.zeros([1, STEP // 8], tl.float32)
    for start in range(0, k, STEP):
        column = start + tl.arange(0, STEP)[None, :]
        real = column < k
        rows = tl.load(weight + first + column, mask=real, other=0.0, eviction_policy="evict_first")
        value = tl.load(x + column, mask=real, other=0.0).to(tl.float32)
        weighted = value * tl.load(norm + column, mask=real, other=0.0).to(tl.float32)
        squares += add_neighbours(value * value)
        sums += add_neighbours(rows.to(tl.float32) * weighted)
    factor = tl.rsqrt(tl.sum(squares, 1, keep_dims=True) / k + eps)
    result = tl.sum(sums, 1, keep_dims=True) * factor
    tl.store(y + row, result.to(tl.bfloat16), mask=row < n)


def norm_gemv(
    x: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """y = weight @ (x * rsqrt(mean(x^2) + eps) * norm); shapes and dtypes are those of the family.

    Raises ValueError for other ones.
    """
    y = norm_gemv_output(x, norm, weight, out)
    n, k = weight.shape
    step = max(MIN_STEP, min(STEP, triton.next_power_of_2(k)))
    norm_gemv_triton[(triton.cdiv(n, ROWS),)](
        x, norm, weight, y, eps, n, k, ROWS=ROWS, STEP=step, num_warps=WARPS
    )  # fmt: skip
    return y
