"""C = A B, then leaky ReLU where asked for: a tile of C a program, in grouped order, one step of k after the other."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK_M, BLOCK_N, BLOCK_K = knob("MM_BLOCK_M") or 64, knob("MM_BLOCK_N") or 64, knob("MM_BLOCK_K") or 32
WARPS, STAGES, GROUP = knob("MM_WARPS") or 4, knob("MM_STAGES") or 3, knob("MM_GROUP") or 8


@triton.jit
def leaky_relu(x, slope):
    """x, and slope * x where x is negative."""
    return tl.where(x >= 0, x, slope * x)


@triton.jit
def product(
    a, b, c, M, N, K, slope, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, LEAKY: tl.constexpr,
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
    b_tile = b + inner[:, None].to(tl.int64) * N + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        left = tl.load(a_tile, mask=inner[None, :] < K - k, other=0.0)
        right = tl.load(b_tile, mask=inner[:, None] < K - k, other=0.0)
        total = tl.dot(left, right, total)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * N
    if LEAKY:
        total = leaky_relu(total, slope)
    rows, columns = (row + tl.arange(0, BLOCK_M))[:, None], (column + tl.arange(0, BLOCK_N))[None, :]
    at = c + rows.to(tl.int64) * N + columns
    tl.store(at, total.to(c.dtype.element_ty), mask=(rows < M) & (columns < N))


def run(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, leaky_relu: bool, negative_slope: float
) -> None:
    """a is M x K, b is K x N, c is M x N; float16, row-major."""
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N),)
    product[grid](
        a, b, c, m, n, k, negative_slope, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, leaky_relu,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
