"""The RWKV6 recurrence token by token: a program for BLOCK value columns of a head keeps its state in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

BLOCK, WARPS = knob("RW_PLAIN_BLOCK"), knob("RW_PLAIN_WARPS")


@triton.jit
def recurrence(r, k, v, w, u, o, heads, length, KEY, VALUE, BK: tl.constexpr, BV: tl.constexpr):
    """o of one head and BV columns: o = (S + u k v^T)^T r, then S = exp(w) S + k v^T."""
    head = tl.program_id(0)
    i, j = tl.arange(0, BK), tl.program_id(1) * BV + tl.arange(0, BV)
    bonus = tl.load(u + (head % heads) * KEY + i, mask=i < KEY, other=0.0)
    state = tl.zeros([BK, BV], tl.float32)
    for token in range(length):
        at = head.to(tl.int64) * length + token
        query = tl.load(r + at * KEY + i, mask=i < KEY, other=0.0).to(tl.float32)
        key = tl.load(k + at * KEY + i, mask=i < KEY, other=0.0).to(tl.float32)
        value = tl.load(v + at * VALUE + j, mask=j < VALUE, other=0.0).to(tl.float32)
        decay = tl.exp(tl.load(w + at * KEY + i, mask=i < KEY, other=0.0))
        added = key[:, None] * value[None, :]
        out = tl.sum((state + bonus[:, None] * added) * query[:, None], 0)
        tl.store(o + at * VALUE + j, out.to(tl.bfloat16), mask=j < VALUE)
        state = state * decay[:, None] + added


def run(
    r: torch.Tensor, k: torch.Tensor, v: torch.Tensor, w: torch.Tensor, u: torch.Tensor, o: torch.Tensor
) -> None:
    """r, k (batch, heads, length, key), v, o (batch, heads, length, value) bfloat16; w as k, u (heads, key) float32."""
    batch, heads, length, key = r.shape
    value = v.shape[3]
    block = min(BLOCK, triton.next_power_of_2(value))
    grid = (batch * heads, triton.cdiv(value, block))
    recurrence[grid](
        r, k, v, w, u, o, heads, length, key, value, BK=triton.next_power_of_2(key), BV=block, num_warps=WARPS
    )
