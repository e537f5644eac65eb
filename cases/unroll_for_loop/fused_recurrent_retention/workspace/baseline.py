"""Retention and its gradients, token by token: a program for each head keeps the whole state in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

WARPS = knob("RT_PLAIN_WARPS")


@triton.jit
def forward(q, k, v, do, o, dq, heads, length, KEY, VALUE, scale, BK: tl.constexpr, BV: tl.constexpr):
    """o and dq of one head, first token to last: h = g h + k v^T, o = h^T q, dq = h do."""
    head = tl.program_id(0)
    i, j = tl.arange(0, BK), tl.arange(0, BV)
    decay = 1 - tl.exp2(-5.0 - (head % heads).to(tl.float32))
    h = tl.zeros([BK, BV], tl.float32)
    for token in range(length):
        at = head.to(tl.int64) * length + token
        key = tl.load(k + at * KEY + i, mask=i < KEY, other=0.0).to(tl.float32)
        query = tl.load(q + at * KEY + i, mask=i < KEY, other=0.0).to(tl.float32)
        value = tl.load(v + at * VALUE + j, mask=j < VALUE, other=0.0).to(tl.float32)
        grad = tl.load(do + at * VALUE + j, mask=j < VALUE, other=0.0).to(tl.float32)
        h = h * decay + key[:, None] * value[None, :]
        out = tl.sum(h * query[:, None], 0) * scale
        tl.store(o + at * VALUE + j, out.to(tl.bfloat16), mask=j < VALUE)
        back = tl.sum(h * grad[None, :], 1) * scale
        tl.store(dq + at * KEY + i, back.to(tl.bfloat16), mask=i < KEY)


@triton.jit
def backward(q, k, v, do, dk, dv, heads, length, KEY, VALUE, scale, BK: tl.constexpr, BV: tl.constexpr):
    """dk and dv of one head, last token to first: dh = g dh + q do^T, dk = dh v, dv = dh^T k."""
    head = tl.program_id(0)
    i, j = tl.arange(0, BK), tl.arange(0, BV)
    decay = 1 - tl.exp2(-5.0 - (head % heads).to(tl.float32))
    dh = tl.zeros([BK, BV], tl.float32)
    for back in range(length):
        at = head.to(tl.int64) * length + (length - 1 - back)
        key = tl.load(k + at * KEY + i, mask=i < KEY, other=0.0).to(tl.float32)
        query = tl.load(q + at * KEY + i, mask=i < KEY, other=0.0).to(tl.float32) * scale
        value = tl.load(v + at * VALUE + j, mask=j < VALUE, other=0.0).to(tl.float32)
        grad = tl.load(do + at * VALUE + j, mask=j < VALUE, other=0.0).to(tl.float32)
        dh = dh * decay + query[:, None] * grad[None, :]
        tl.store(dk + at * KEY + i, tl.sum(dh * value[None, :], 1).to(tl.bfloat16), mask=i < KEY)
        tl.store(dv + at * VALUE + j, tl.sum(dh * key[:, None], 0).to(tl.bfloat16), mask=j < VALUE)


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor,
    o: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor,
) -> None:  # fmt: skip
    """q, k, dq, dk (batch, heads, length, key), v, do, o, dv (batch, heads, length, value), all bfloat16."""
    batch, heads, length, key = q.shape
    value = v.shape[3]
    sizes = heads, length, key, value, key**-0.5, triton.next_power_of_2(key), triton.next_power_of_2(value)
    warps = max(WARPS, sizes[-1] * sizes[-2] // 2048)
    forward[(batch * heads,)](q, k, v, do, o, dq, *sizes, num_warps=warps)
    backward[(batch * heads,)](q, k, v, do, dk, dv, *sizes, num_warps=warps)
