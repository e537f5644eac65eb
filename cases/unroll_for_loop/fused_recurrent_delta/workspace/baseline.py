"""The delta rule and its gradients, token by token: a program for each head keeps the whole state in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

WARPS = knob("DR_PLAIN_WARPS")


@triton.jit
def row(pointer, at, WIDTH, B: tl.constexpr):
    """One token's row, as float32, zero beyond its WIDTH; a width of one is the same number everywhere."""
    i = tl.arange(0, B)
    if WIDTH == 1:
        i = i * 0
    return tl.load(pointer + at * WIDTH + i, mask=i < WIDTH, other=0.0).to(tl.float32)


@triton.jit
def store_row(pointer, value, at, WIDTH, B: tl.constexpr):
    """One token's row, in bfloat16."""
    i = tl.arange(0, B)
    tl.store(pointer + at * WIDTH + i, value.to(tl.bfloat16), mask=i < WIDTH)


@triton.jit
def forward(
    q,
    k,
    v,
    beta,
    do,
    o,
    dq,
    errors,
    length,
    KEY,
    VALUE,
    BETAS: tl.constexpr,
    scale,
    BK: tl.constexpr,
    BV: tl.constexpr,
):
    """o and dq of one head, first token to last, and v - S^T k of each token for the way back."""
    state = tl.zeros([BK, BV], tl.float32)
    for token in range(length):
        at = tl.program_id(0).to(tl.int64) * length + token
        key, query = row(k, at, KEY, BK), row(q, at, KEY, BK)
        grad, rate = row(do, at, VALUE, BV), row(beta, at, BETAS, BV)
        error = row(v, at, VALUE, BV) - tl.sum(state * key[:, None], 0)
        state += key[:, None] * (rate * error)[None, :]
        store_row(o, tl.sum(state * query[:, None], 0) * scale, at, VALUE, BV)
        store_row(dq, tl.sum(state * grad[None, :], 1) * scale, at, KEY, BK)
        tl.store(errors + at * BV + tl.arange(0, BV), error)
    i, j = tl.arange(0, BK)[:, None], tl.arange(0, BV)[None, :]
    tl.store(errors + (tl.num_programs(0).to(tl.int64) * length + tl.program_id(0) * BK + i) * BV + j, state)


@triton.jit
def backward(
    q, k, v, beta, do, dk, dv, dbeta, errors, length, KEY, VALUE, BETAS: tl.constexpr, scale,
    BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """dk, dv and dbeta of one head, last token to first; states are found again by taking back what was added."""
    i, j = tl.arange(0, BK)[:, None], tl.arange(0, BV)[None, :]
    state = tl.load(errors + (tl.num_programs(0).to(tl.int64) * length + tl.program_id(0) * BK + i) * BV + j)
    gradient = tl.zeros([BK, BV], tl.float32)
    for back in range(length):
        at = tl.program_id(0).to(tl.int64) * length + (length - 1 - back)
        key, query = row(k, at, KEY, BK), row(q, at, KEY, BK) * scale
        grad, rate = row(do, at, VALUE, BV), row(beta, at, BETAS, BV)
        error = tl.load(errors + at * BV + tl.arange(0, BV))
        added = rate * error
        state -= key[:, None] * added[None, :]
        gradient += query[:, None] * grad[None, :]
        du = tl.sum(gradient * key[:, None], 0)
        pull = rate * du
        change = gradient * added[None, :] - state * pull[None, :]
        store_row(dk, tl.sum(change, 1), at, KEY, BK)
        store_row(dv, pull, at, VALUE, BV)
        if BETAS == 1:
            tl.store(dbeta + at, tl.sum(du * error, 0).to(tl.bfloat16))
        else:
            store_row(dbeta, du * error, at, VALUE, BV)
        gradient -= key[:, None] * pull[None, :]


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, do: torch.Tensor,
    o: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, dbeta: torch.Tensor,
) -> None:  # fmt: skip
    """q, k, dq, dk (batch, heads, length, key), v, do, o, dv (..., value), beta, dbeta (..., 1 or value), bfloat16."""
    batch, heads, length, key = q.shape
    value, many = v.shape[3], batch * heads
    bk, bv = triton.next_power_of_2(key), triton.next_power_of_2(value)
    errors = torch.empty((many * length + many * bk, bv), dtype=torch.float32, device=q.device)
    sizes = length, key, value, beta.shape[3], key**-0.5, bk, bv
    warps = max(WARPS, bk * bv // 2048)
    forward[(many,)](q, k, v, beta, do, o, dq, errors, *sizes, num_warps=warps)
    backward[(many,)](q, k, v, beta, do, dk, dv, dbeta, errors, *sizes, num_warps=warps)
