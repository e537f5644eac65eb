"""C = A B where a step's pointers are made of the loop's induction variable, in five schedules of when that happens.

All five compute the same. They differ in how far from its loads a pointer is made, which is what a compiler has to see
through before it can load ahead.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

SCHEDULE = knob("IV_SCHEDULE")
BLOCK_M, BLOCK_N, BLOCK_K = knob("MM_BLOCK_M") or 32, knob("MM_BLOCK_N") or 32, knob("MM_BLOCK_K") or 32
WARPS, STAGES = knob("MM_WARPS") or 4, knob("MM_STAGES") or 3


@triton.jit
def product(
    a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SCHEDULE: tl.constexpr
):  # fmt: skip
    """One tile of C. Rows and columns outside it are read as the first ones again and never written."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    row, column = tl.program_id(0) // tiles_n * BLOCK_M, tl.program_id(0) % tiles_n * BLOCK_N
    rows, columns = (row + tl.arange(0, BLOCK_M)) % M, (column + tl.arange(0, BLOCK_N)) % N
    inner = tl.arange(0, BLOCK_K)
    a_start = a + rows[:, None].to(tl.int64) * K + inner[None, :]
    b_start = b + inner[:, None].to(tl.int64) * N + columns[None, :]
    a_step, b_step = BLOCK_K, tl.cast(BLOCK_K * N, tl.int64)
    a_tile, b_tile = a_start, b_start
    a_next, b_next = a_start + a_step, b_start + b_step
    a_third, b_third = a_next + a_step, b_next + b_step
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        if SCHEDULE == "pre_load":
            a_tile = a_start + step * a_step
            b_tile = b_start + step * b_step
        elif SCHEDULE == "post_pre_mixed":
            a_tile = a_start + step * a_step
        left = tl.load(a_tile, mask=inner[None, :] < K - step * BLOCK_K, other=0.0)
        right = tl.load(b_tile, mask=inner[:, None] < K - step * BLOCK_K, other=0.0)
        total = tl.dot(left, right, total)
        if SCHEDULE == "post_load":
            a_tile = a_start + (step + 1) * a_step
            b_tile = b_start + (step + 1) * b_step
        elif SCHEDULE == "post_pre_mixed":
            b_tile = b_start + (step + 1) * b_step
        elif SCHEDULE == "post_load_two_iters":
            a_tile, b_tile = a_next, b_next
            a_next = a_start + (step + 2) * a_step
            b_next = b_start + (step + 2) * b_step
        elif SCHEDULE == "post_load_three_iters":
            a_tile, b_tile = a_next, b_next
            a_next, b_next = a_third, b_third
            a_third = a_start + (step + 3) * a_step
            b_third = b_start + (step + 3) * b_step
    rows, columns = (row + tl.arange(0, BLOCK_M))[:, None], (column + tl.arange(0, BLOCK_N))[None, :]
    at = c + rows.to(tl.int64) * N + columns
    tl.store(at, total.to(c.dtype.element_ty), mask=(rows < M) & (columns < N))


def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """a is M x K, b is K x N, c is M x N; float16, row-major."""
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N),)
    product[grid](
        a, b, c, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, SCHEDULE, num_warps=WARPS, num_stages=STAGES
    )  # fmt: skip
