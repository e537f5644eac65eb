"""The delta rule and its gradients in chunks of 16 tokens: what tokens write is solved for, the rest is products.

From the state S before a chunk the writes u solve u = beta (v - k S - A u), A = k k^T below the diagonal. With one
beta a head, sixteen turns of that line on the identity give the inverse of every chunk before the walk (the UT
transform): after turn n the first n tokens are right, whatever stood in the others. It asks for no powers of A, which
lose all digits where keys are alike. With a beta for each element every value column has a system of its own, and the
walk solves it: token by token in float32 forwards, in turns backwards, where the transposed system forgives bfloat16.

Everything that goes from turn to turn and from chunk to chunk is kept transposed, values x tokens and values x
keys: then it is always the first operand of the next product, which comes from registers. The way back finds states
again by subtracting what was written, so that no state but the last is stored.

Products are of bfloat16. States, their gradient and what is written are multiplied in two halves, as good as float32,
wherever a difference or o is made of them: a state may be small where what it is a difference of is not, and dbeta is
not small where beta is zero. So are queries x keys in the gradient of u, whose rounding all values share. All else is
rounded once: keys x keys, u and its gradient in products within a chunk, and states in dq and dk.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

WARPS, STAGES = knob("DR_WARPS"), knob("DR_STAGES")

CHUNK = 16
"""Tokens solved for at once: the smallest that a matrix product takes, since each costs a turn."""


@triton.jit
def load(pointer, start, length, WIDTH, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr):
    """C rows of a (length, WIDTH) matrix from row `start` on, as C x B, zero beyond its edges."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, B)[None, :]
    at = pointer + tl.cast(start, tl.int64) * WIDTH + row * WIDTH + column
    real = (row < length - start) & (column < WIDTH)
    return tl.load(at) if EVEN else tl.load(at, mask=real, other=0.0)


@triton.jit
def load_rates(
    pointer, start, length, WIDTH: tl.constexpr, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr
):
    """beta as values x tokens in float32; where there is one for a head, the same for all values."""
    if WIDTH == 1:
        row = tl.arange(0, C)
        rates = tl.load(pointer + start + row, mask=row < length - start, other=0.0)[None, :]
    else:
        rates = tl.trans(load(pointer, start, length, WIDTH, C, B, EVEN))
    return rates.to(tl.float32)


@triton.jit
def store(pointer, value, start, length, WIDTH, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr):
    """As load; the pointer's type is what is stored."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, B)[None, :]
    at = pointer + tl.cast(start, tl.int64) * WIDTH + row * WIDTH + column
    if EVEN:
        tl.store(at, value)
    else:
        tl.store(at, value, mask=(row < length - start) & (column < WIDTH))


@triton.jit
def halves(x):
    """float32 as the sum of two bfloat16, to the last few bits."""
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def product(high, low, right, acc):
    """acc + (high + low) @ right in float32: as if a float32 were multiplied, in two products."""
    return tl.dot(high, right, acc=tl.dot(low, right, acc=acc))


@triton.jit
def inverses(k, beta, inverse, length, KEY, C: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    """(I + beta A)^-1 of each chunk of each head, C x C, in float32."""
    head, chunk, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    key = load(k + head * length * KEY, chunk * C, length, KEY, C, BK, EVEN)
    token = chunk * C + tl.arange(0, C)
    rate = tl.load(beta + head * length + token, mask=token < length, other=0.0).to(tl.float32)
    system = tl.where(i > j, tl.dot(key, tl.trans(key)) * rate[:, None], 0.0)
    one = tl.where(i == j, 1.0, 0.0)
    found = one
    for _ in tl.range(1, C, num_stages=1):
        found = one - tl.dot(system, found, input_precision="ieee")
    tl.store(inverse + ((head * count + chunk) * C + i) * C + j, found)


@triton.jit
def likenesses(k, likeness, length, KEY, C: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    """Of each chunk of each head the products of a token's key (row) with those of later tokens, C x C, in float32."""
    head, chunk, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    key = load(k + head * length * KEY, chunk * C, length, KEY, C, BK, EVEN)
    later = tl.where(i < j, tl.dot(key, tl.trans(key)), 0.0)
    tl.store(likeness + ((head * count + chunk) * C + i) * C + j, later)


@triton.jit
def corrected(error, rates, likeness, C: tl.constexpr):
    """v - k S - A u of a chunk from v - k S, values x tokens: token by token, its u leaves the errors of later ones."""
    token = tl.arange(0, C)
    for t in tl.static_range(C - 1):
        alike = tl.load(likeness + t * C + token)
        u = tl.sum(tl.where(token[None, :] == t, rates, 0.0) * error, 1)
        error -= u[:, None] * alike[None, :]
    return error


@triton.jit
def forward(
    q, k, v, beta, do, o, dq, writes, states, inverse, length, KEY, VALUE, BETAS: tl.constexpr, scale,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """o and dq of one head, first chunk to last; what is written, and the last state, for the way back."""
    head = tl.program_id(0).to(tl.int64)
    keys, values, rate = head * length * KEY, head * length * VALUE, beta + head * length * BETAS
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    state = tl.zeros([BV, BK], tl.float32)
    for chunk in tl.range(0, tl.cdiv(length, C), num_stages=STAGES):
        start = chunk * C
        query = load(q + keys, start, length, KEY, C, BK, EVEN)
        key = load(k + keys, start, length, KEY, C, BK, EVEN)
        value = load(v + values, start, length, VALUE, C, BV, EVEN)
        grad = load(do + values, start, length, VALUE, C, BV, EVEN)
        rates = load_rates(rate, start, length, BETAS, C, BV, EVEN)
        before, rest = halves(state)
        known = product(before, rest, tl.trans(key), tl.zeros([BV, C], tl.float32))
        error = tl.trans(value).to(tl.float32) - known
        system = inverse + (head * tl.cdiv(length, C) + chunk) * C * C
        if BETAS == 1:
            exact = tl.dot(rates * error, tl.trans(tl.load(system + i * C + j)), input_precision="tf32x3")
            kept = exact
        else:
            kept = corrected(error, rates, system, C)
            exact = rates * kept
        u, low = halves(exact)
        store(writes + values, tl.trans(kept), start, length, VALUE, C, BV, EVEN)
        seen = tl.where(i <= j, tl.dot(key, tl.trans(query)), 0.0).to(tl.bfloat16)
        asked = product(before, rest, tl.trans(query), tl.zeros([BV, C], tl.float32))
        out = tl.dot(u, seen, acc=asked) * scale
        store(o + values, tl.trans(out.to(tl.bfloat16)), start, length, VALUE, C, BV, EVEN)
        back = tl.where(i >= j, tl.dot(grad, u), 0.0).to(tl.bfloat16)
        out = tl.dot(back, key, acc=tl.dot(grad, before)) * scale
        store(dq + keys, out.to(tl.bfloat16), start, length, KEY, C, BK, EVEN)
        state = product(u, low, key, state)
    at = (head * BV + tl.arange(0, BV)[:, None]) * BK + tl.arange(0, BK)[None, :]
    tl.store(states + at, state)


@triton.jit
def backward(
    q, k, v, beta, do, dk, dv, dbeta, writes, states, inverse, length, KEY, VALUE, BETAS: tl.constexpr, scale,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dk, dv and dbeta of one head, last chunk to first."""
    head = tl.program_id(0).to(tl.int64)
    keys, values, rate = head * length * KEY, head * length * VALUE, beta + head * length * BETAS
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    state = tl.load(states + (head * BV + tl.arange(0, BV)[:, None]) * BK + tl.arange(0, BK)[None, :])
    gradient = tl.zeros([BV, BK], tl.float32)
    chunks = tl.cdiv(length, C)
    for turn in tl.range(0, chunks, num_stages=STAGES):
        start = (chunks - 1 - turn) * C
        query = load(q + keys, start, length, KEY, C, BK, EVEN)
        key = load(k + keys, start, length, KEY, C, BK, EVEN)
        value = load(v + values, start, length, VALUE, C, BV, EVEN)
        grad = load(do + values, start, length, VALUE, C, BV, EVEN)
        kept = tl.trans(load(writes + values, start, length, VALUE, C, BV, EVEN))
        rates = load_rates(rate, start, length, BETAS, C, BV, EVEN)
        u, low = halves(kept if BETAS == 1 else rates * kept)
        written = tl.trans(u)
        state = product(-u, -low, key, state)
        alike = tl.dot(key, tl.trans(key))
        error = kept
        if BETAS == 1:
            before, rest = halves(state)
            above = tl.where(i < j, alike, 0.0).to(tl.bfloat16)
            known = product(before, rest, tl.trans(key), tl.dot(u, above))
            error = tl.trans(value).to(tl.float32) - known
        after, rest = halves(gradient)
        seen, fine = halves(tl.where(i >= j, tl.dot(query, tl.trans(key)), 0.0) * scale)
        given = tl.dot(tl.trans(grad), seen, acc=tl.dot(tl.trans(grad), fine))
        given = product(after, rest, tl.trans(key), given)
        x = given
        if BETAS == 1:
            solve = tl.load(inverse + ((head * chunks + chunks - 1 - turn) * C + i) * C + j)
            x = tl.dot(given, solve, input_precision="tf32x3")
        else:
            below = tl.where(i > j, alike, 0.0).to(tl.bfloat16)
            for _ in tl.range(1, C, num_stages=1):
                x = given - tl.dot((rates * x).to(tl.bfloat16), below)
        pull = (rates * x).to(tl.bfloat16)
        pulled = tl.trans(pull)
        store(dv + values, pulled, start, length, VALUE, C, BV, EVEN)
        if BETAS == 1:
            row = tl.arange(0, C)
            total = tl.sum(x * error, 0).to(tl.bfloat16)
            tl.store(dbeta + head * length + start + row, total, mask=row < length - start)
        else:
            share = tl.trans((x * error).to(tl.bfloat16))
            store(dbeta + values, share, start, length, VALUE, C, BV, EVEN)
        cross = tl.dot(pulled, u)
        twice = tl.where(i > j, cross, 0.0)
        twice = (-twice - tl.trans(twice)).to(tl.bfloat16)
        back = (tl.where(i <= j, tl.dot(written, tl.trans(grad)), 0.0) * scale).to(tl.bfloat16)
        out = tl.dot(twice, key, acc=tl.dot(back, query))
        out = tl.dot(written, after, acc=tl.dot(-pulled, state.to(tl.bfloat16), acc=out))
        store(dk + keys, out.to(tl.bfloat16), start, length, KEY, C, BK, EVEN)
        gradient = tl.dot(-pull, key, acc=gradient) + tl.dot(tl.trans(grad), query) * scale


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, do: torch.Tensor,
    o: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, dbeta: torch.Tensor,
) -> None:  # fmt: skip
    """q, k, dq, dk (batch, heads, length, key), v, do, o, dv (..., value), beta, dbeta (..., 1 or value), bfloat16."""
    batch, heads, length, key = q.shape
    value, many = v.shape[3], batch * heads
    bk, bv = (max(16, triton.next_power_of_2(size)) for size in (key, value))
    writes = torch.empty((many, length, value), dtype=torch.float32, device=q.device)
    states = torch.empty((many, bv, bk), dtype=torch.float32, device=q.device)
    chunks, even = triton.cdiv(length, CHUNK), length % CHUNK == 0 and (bk, bv) == (key, value)
    inverse = torch.empty((many, chunks, CHUNK, CHUNK), dtype=torch.float32, device=q.device)
    if beta.shape[3] == 1:
        inverses[(many, chunks)](k, beta, inverse, length, key, CHUNK, bk, even, num_warps=1)
    else:
        likenesses[(many, chunks)](k, inverse, length, key, CHUNK, bk, even, num_warps=1)
    options = {"C": CHUNK, "BK": bk, "BV": bv, "EVEN": even, "STAGES": STAGES or 3}
    options["num_warps"] = WARPS or (8 if bk * bv > 64 * 64 else 4)
    sizes = length, key, value, beta.shape[3], key**-0.5
    forward[(many,)](q, k, v, beta, do, o, dq, writes, states, inverse, *sizes, **options)
    backward[(many,)](q, k, v, beta, do, dk, dv, dbeta, writes, states, inverse, *sizes, **options)
