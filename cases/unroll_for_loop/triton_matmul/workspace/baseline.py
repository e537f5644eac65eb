"""C = A B: a tile of C a program, in grouped order, one step of k after the other.

Each step's product is added to the float32 sums by itself. For float16 the compiler makes one instruction of both. The
tensor cores sum products of float8 in 14 bits, so for float8 it must stay an addition.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK_M, BLOCK_N, BLOCK_K = knob("MM_BLOCK_M") or 64, knob("MM_BLOCK_N") or 64, knob("MM_BLOCK_K") or 64
WARPS, STAGES, GROUP = knob("MM_WARPS") or 4, knob("MM_STAGES") or 3, knob("MM_GROUP") or 8


@triton.jit
def product(
    a, b, c, M, N, K, b_row, b_column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of C. Rows and columns outside it are read as the first ones again and never written."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tl.program_id(0) // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP, GROUP)
    within = tl.program_id(0) % (GROUP * tiles_n)
    row, column = (group * GROUP + within % height) * BLOCK_M, within // height * BLOCK_N
    rows, columns = (row + tl.arange(0, BLOCK_M)) % M, (column + tl.arange(0, BLOCK_N)) % N
    inner = tl.arange(0, BLOCK_K)
    a_tile = a + rows[:, None].to(tl.int64) * K + inner[None, :]
    b_tile = b + inner[:, None].to(tl.int64) * b_row + columns[None, :].to(tl.int64) * b_column
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        left = tl.load(a_tile, mask=inner[None, :] < K - k, other=0.0)
        right = tl.load(b_tile, mask=inner[:, None] < K - k, other=0.0)
        total += tl.dot(left, right)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * b_row
    rows, columns = (row + tl.arange(0, BLOCK_M))[:, None], (column + tl.arange(0, BLOCK_N))[None, :]
    at = c + rows.to(tl.int64) * N + columns
    tl.store(at, total.to(tl.float16), mask=(rows < M) & (columns < N))


def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, transposed: bool) -> None:
    """a is M x K, b is K x N or, transposed, N x K; both float16 or float8. c is M x N, float16. All row-major."""
    (m, k), n = a.shape, c.shape[1]
    b_row, b_column = (1, k) if transposed else (n, 1)
    grid = (triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N),)
    product[grid](
        a, b, c, m, n, k, b_row, b_column, BLOCK_M, BLOCK_N, BLOCK_K, GROUP,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
