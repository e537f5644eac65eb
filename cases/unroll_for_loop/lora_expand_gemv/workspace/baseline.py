"""LoRA expansion, a program for each request and part of its outputs: a matrix-vector product in a loop over tiles."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

SPLIT, TILE, WARPS = knob("LORA_SPLIT"), knob("LORA_TILE") or 64, knob("LORA_WARPS") or 4


@triton.jit
def expand_part(
    x, weights, adapter_of, base, out, width, part, RANK: tl.constexpr, K: tl.constexpr, TILE: tl.constexpr,
    ACCUMULATE: tl.constexpr,
):  # fmt: skip
    """Outputs part * p up to part * (p + 1) of one request; K is the rank or the next power of two."""
    request = tl.program_id(1).to(tl.int64)
    adapter = tl.load(adapter_of + request).to(tl.int64)
    k = tl.arange(0, K)
    inputs = tl.load(x + request * RANK + k, mask=k < tl.where(adapter >= 0, RANK, 0), other=0).to(tl.float32)
    loaded = tl.where(adapter >= 0, width, 0)
    first = tl.program_id(0) * part
    for start in range(first, tl.minimum(first + part, width), TILE):
        column = start + tl.arange(0, TILE)
        real = (column < width) & (column < first + part)
        at = (adapter * width + column)[:, None] * RANK + k[None, :]
        used = (real & (column < loaded))[:, None] & (k < RANK)[None, :]
        weight = tl.load(weights + at, mask=used, other=0).to(tl.float32)
        result = tl.sum(weight * inputs[None, :], 1)
        if ACCUMULATE:
            result += tl.load(base + request * width + column, mask=real, other=0).to(tl.float32)
        tl.store(out + request * width + column, result.to(tl.bfloat16), mask=real)


def run(
    x: torch.Tensor,
    weights: torch.Tensor,
    adapter_of: torch.Tensor,
    base: torch.Tensor,
    out: torch.Tensor,
    *,
    accumulate: bool,
) -> None:
    """x bfloat16 requests x rank, weights adapters x width x rank, adapter_of int32; base, out requests x width."""
    requests, rank = x.shape
    width = out.shape[1]
    part = max(TILE, triton.cdiv(width, SPLIT))
    grid = (triton.cdiv(width, part), requests)
    expand_part[grid](
        x, weights, adapter_of, base, out, width, part, rank, triton.next_power_of_2(rank), TILE, accumulate,
        num_warps=WARPS,
    )  # fmt: skip
