"""C = A B, the plain way: a program makes one tile of C, and a loop over k adds one product of tiles a step."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK_M, BLOCK_N, BLOCK_K = knob("MM_BLOCK_M") or 64, knob("MM_BLOCK_N") or 64, knob("MM_BLOCK_K") or 32
WARPS, STAGES = knob("MM_WARPS") or 4, knob("MM_STAGES") or 3


@triton.jit
def product(
    a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """One tile of C. Rows and columns outside it are read as zeros and never written."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = (tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    columns = (tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    inner = tl.arange(0, BLOCK_K)
    a_tile = a + rows.to(tl.int64) * K + inner[None, :]
    b_tile = b + inner[:, None].to(tl.int64) * N + columns
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        left = tl.load(a_tile, mask=(rows < M) & (inner[None, :] < K - k), other=0.0)
        right = tl.load(b_tile, mask=(columns < N) & (inner[:, None] < K - k), other=0.0)
        total = tl.dot(left, right, total)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * N
    inside = (rows < M) & (columns < N)
    tl.store(c + rows.to(tl.int64) * N + columns, total.to(c.dtype.element_ty), mask=inside)


def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """a is M x K, b is K x N, c is M x N; bfloat16, row-major."""
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N),)
    product[grid](
        a, b, c, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, num_warps=WARPS, num_stages=STAGES
    )  # fmt: skip
