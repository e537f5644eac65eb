"""The delta rule and its gradients in chunks of 16 tokens: what tokens write is solved for, the rest is products.

With e = v - S^T k what a token corrects, u = beta e what it writes and x the gradient of u, a chunk of tokens solves
(I + A beta) e = v - k S forwards, A = k k^T below the diagonal, and (I + beta A)^T x = P^T do + k D backwards, D the
gradient of the state after it. Three steps:

1. With one beta a head, the inverses of both systems for every chunk of every head (the UT transform), put together
   from inverses of halves: no powers of A, which lose all digits where keys are alike. With a beta for each
   element every value column has a system of its own, which step 2 solves: token by token in float32 forwards, in
   turns of x = given - A^T (beta x) backwards, where C - 1 turns are exact and bfloat16 is forgiven.
2. The two chains, e and S forwards, x and D backwards. Neither needs the other, and value columns do not need each
   other: a program is one warp with VALUES columns of one direction of a head. S before and D after each tile are
   stored. Where heads are few and have one beta, time is cut into segments: a first run finds what each adds, and, from
   an identity in further columns, what it makes of the state before it; a product a segment hands that on.
3. All outputs, each tile of tokens by itself, in larger products.

In the chains all is transposed, values x tokens and values x keys: so it is always the first operand of the next
product, which comes from registers.

Products are of bfloat16. In the chains states, their gradient and what is written are multiplied in two halves, as
good as float32, and so are states for o: a state may be small where what it is a difference of is not, and dbeta is not
small where beta is zero. So are queries x keys in the gradient of u, whose rounding all values share. All else is
rounded once: keys x keys, e, u and x once they are solved for, and states in dq and dk.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

VALUES, TILE, WARPS, STAGES, SEGMENTS = (
    knob(f"DR_{name}") for name in ("VALUES", "TILE", "WARPS", "STAGES", "SEGMENTS")
)

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

NARROW, SHORT = 64, 32
"""Below so many keys or values, at most so many tokens in a tile of outputs. In products of 64 rows Triton 3.6 reads
beyond a program's shared memory with 32 keys and 64 values (compute-sanitizer); 32 rows take another instruction."""

CHUNK = 16
"""Tokens solved for at once: the smallest that a matrix product takes, since solving is what costs."""


@triton.jit
def load(pointer, start, length, first, WIDTH, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr):
    """Columns `first` on of C rows of a (length, WIDTH) matrix from row `start` on, as C x B, zero beyond its edges."""
    row, column = tl.arange(0, C)[:, None], first + tl.arange(0, B)[None, :]
    at = pointer + tl.cast(start, tl.int64) * WIDTH + row * WIDTH + column
    real = (row < length - start) & (column < WIDTH)
    return tl.load(at) if EVEN else tl.load(at, mask=real, other=0.0)


@triton.jit
def load_rates(
    pointer, start, length, first, WIDTH: tl.constexpr, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr
):
    """beta as tokens x values in float32; where there is one for a head, the same for all values."""
    if WIDTH == 1:
        row = tl.arange(0, C)
        rates = tl.load(pointer + start + row, mask=row < length - start, other=0.0)[:, None]
    else:
        rates = load(pointer, start, length, first, WIDTH, C, B, EVEN)
    return rates.to(tl.float32)


@triton.jit
def store(pointer, value, start, length, first, WIDTH, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr):
    """As load, in the type that the pointer has."""
    row, column = tl.arange(0, C)[:, None], first + tl.arange(0, B)[None, :]
    at = pointer + tl.cast(start, tl.int64) * WIDTH + row * WIDTH + column
    if EVEN:
        tl.store(at, value.to(pointer.dtype.element_ty))
    else:
        tl.store(at, value.to(pointer.dtype.element_ty), mask=(row < length - start) & (column < WIDTH))


@triton.jit
def state_at(states, which, first, B: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    """Addresses of rows `first` to `first` + B of one state, values x keys."""
    row = first + tl.arange(0, B)[:, None]
    return states + tl.cast(which, tl.int64) * BV * BK + row * BK + tl.arange(0, BK)[None, :]


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
    """(I + A beta)^-1 and (I + beta A)^-1 of each chunk of each head, C x C, in float32."""
    head, chunk, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    key = load(k + head * length * KEY, chunk * C, length, 0, KEY, C, BK, EVEN)
    token = chunk * C + tl.arange(0, C)
    rate = tl.load(beta + head * length + token, mask=token < length, other=0.0).to(tl.float32)
    below = tl.where(i > j, tl.dot(key, tl.trans(key)), 0.0)
    system = below * rate[:, None]
    one = tl.where(i == j, 1.0, 0.0)
    found = one - tl.where(i // 2 == j // 2, system, 0.0)
    for level in tl.static_range(1, C.bit_length() - 1):
        corner = tl.where((i >> (level + 1) == j >> (level + 1)) & (i >> level != j >> level), system, 0.0)
        corner = tl.dot(corner, found, input_precision="ieee")
        found -= tl.dot(found, corner, input_precision="ieee")
    at = inverse + ((head * count + chunk) * 2 * C + i) * C + j
    tl.store(at, one - tl.dot(below, found * rate[None, :], input_precision="ieee"))
    tl.store(at + C * C, found)


@triton.jit
def likenesses(k, likeness, length, KEY, C: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    """Of each chunk of each head the products of a token's key (row) with those of later tokens, C x C, in float32."""
    head, chunk, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    key = load(k + head * length * KEY, chunk * C, length, 0, KEY, C, BK, EVEN)
    later = tl.where(i < j, tl.dot(key, tl.trans(key)), 0.0)
    tl.store(likeness + ((head * count + chunk) * 2 * C + i) * C + j, later)


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
def chains(
    q, k, v, beta, do, errors, pulls, states, inverse, starts, length, KEY, VALUE, BETAS: tl.constexpr, scale, each,
    C: tl.constexpr, TURNS: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, B: tl.constexpr,
    PROBE: tl.constexpr, SPLIT: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """e of B values of a segment, first chunk to last, or (axis 2 odd) x, last to first; states of every TURNS chunks.

    A PROBE stores nothing but the states it ends with: from zero, and, in columns after the values, from an identity.
    """
    head, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * B
    back, part = tl.program_id(2) % 2, tl.program_id(2) // 2
    keys, values, rate = head * length * KEY, head * length * VALUE, beta + head * length * BETAS
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    chunks, tiles = tl.cdiv(length, C), tl.cdiv(length, C * TURNS)
    begin, end = part * each, tl.minimum((part + 1) * each, chunks)
    solves = inverse + head * chunks * 2 * C * C
    which = (back * tl.num_programs(0) + head) * (tl.num_programs(2) // 2) + part
    state = tl.zeros([B, BK], tl.float32)
    real, row = 1.0, first
    if PROBE:
        real, row = tl.where(first < BV, 1.0, 0.0), first % BV
        state += first - BV + tl.arange(0, B)[:, None] == tl.arange(0, BK)[None, :]
    if SPLIT:
        state = tl.load(state_at(starts, which, first, B, BK, BV + BK))
    if back == 0:
        for chunk in tl.range(begin, end, num_stages=STAGES):
            key = load(k + keys, chunk * C, length, 0, KEY, C, BK, EVEN)
            value = tl.trans(load(v + values, chunk * C, length, row, VALUE, C, B, EVEN)).to(tl.float32)
            rates = tl.trans(load_rates(rate, chunk * C, length, row, BETAS, C, B, EVEN))
            before, rest = halves(state)
            known = product(before, rest, tl.trans(key), tl.zeros([B, C], tl.float32))
            error = (value * real if PROBE else value) - known
            solve = solves + chunk * 2 * C * C
            if BETAS == 1:
                error = tl.dot(error, tl.trans(tl.load(solve + i * C + j)), input_precision="tf32x3")
            else:
                error = corrected(error, rates, solve, C)
            if not PROBE:
                at = state_at(states, head * tiles + chunk // TURNS, first, B, BK, BV)
                tl.store(at, state, mask=(tl.zeros([B, BK], tl.int32) + chunk % TURNS) == 0)
                store(errors + values, tl.trans(error), chunk * C, length, first, VALUE, C, B, EVEN)
            u, low = halves(rates * error)
            state = product(u, low, key, state)
    else:
        for turn in tl.range(0, end - begin, num_stages=STAGES):
            chunk = end - 1 - turn
            query = load(q + keys, chunk * C, length, 0, KEY, C, BK, EVEN)
            key = load(k + keys, chunk * C, length, 0, KEY, C, BK, EVEN)
            grad = tl.trans(load(do + values, chunk * C, length, row, VALUE, C, B, EVEN))
            if PROBE:
                grad = (grad.to(tl.float32) * real).to(tl.bfloat16)
            rates = tl.trans(load_rates(rate, chunk * C, length, row, BETAS, C, B, EVEN))
            seen, fine = halves(tl.where(i >= j, tl.dot(query, tl.trans(key)), 0.0) * scale)
            after, rest = halves(state)
            x = tl.dot(grad, seen, acc=tl.dot(grad, fine))
            x = product(after, rest, tl.trans(key), x)
            if BETAS == 1:
                solve = tl.load(solves + (chunk * 2 + 1) * C * C + i * C + j)
                x = tl.dot(x, solve, input_precision="tf32x3")
            else:
                given, below = x, tl.where(i > j, tl.dot(key, tl.trans(key)), 0.0).to(tl.bfloat16)
                for _ in tl.range(1, C, num_stages=1):
                    x = given - tl.dot((rates * x).to(tl.bfloat16), below)
            if PROBE:
                pull, low = halves(rates * x)
                state = product(-pull, -low, key, state)
            else:
                at = state_at(states, (tl.num_programs(0) + head) * tiles + chunk // TURNS, first, B, BK, BV)
                last = (chunk == chunks - 1) | (chunk % TURNS == TURNS - 1)
                tl.store(at, state, mask=(tl.zeros([B, BK], tl.int32) + last) != 0)
                x = x.to(tl.bfloat16)
                store(pulls + values, tl.trans(x), chunk * C, length, first, VALUE, C, B, EVEN)
                state = tl.dot((-rates * x.to(tl.float32)).to(tl.bfloat16), key, acc=state)
            state += tl.dot(grad, query) * scale
    if PROBE:
        tl.store(state_at(starts, which, first, B, BK, BV + BK), state)


@triton.jit
def hand_on(starts, count, B: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    """Turns what segments end with into what each one starts from, in place: B values of one direction of a head."""
    head, first, back = tl.program_id(0), tl.program_id(1) * B, tl.program_id(2)
    state = tl.zeros([B, BK], tl.float32)
    for turn in tl.range(0, count, num_stages=2):
        which = (back * tl.num_programs(0) + head) * count + tl.where(back == 1, count - 1 - turn, turn)
        here = state_at(starts, which, first, B, BK, BV + BK)
        added, passed = tl.load(here), tl.load(state_at(starts, which, BV, BK, BK, BV + BK))
        tl.store(here, state)
        state = added + tl.dot(state, passed, input_precision="tf32x3")


@triton.jit
def outputs(
    q, k, beta, do, errors, pulls, states, o, dq, dk, dv, dbeta, length, KEY, VALUE, BETAS: tl.constexpr, scale,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """All outputs of a tile of C tokens, from e, x, the state before it and the gradient of the state after it."""
    head, tile, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    start, keys, values = tile * C, head * length * KEY, head * length * VALUE
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    query = load(q + keys, start, length, 0, KEY, C, BK, EVEN)
    key = load(k + keys, start, length, 0, KEY, C, BK, EVEN)
    grad = load(do + values, start, length, 0, VALUE, C, BV, EVEN)
    error = load(errors + values, start, length, 0, VALUE, C, BV, EVEN).to(tl.float32)
    x = load(pulls + values, start, length, 0, VALUE, C, BV, EVEN).to(tl.float32)
    rates = load_rates(beta + head * length * BETAS, start, length, 0, BETAS, C, BV, EVEN)
    u, low = halves(rates * error)
    pull = (rates * x).to(tl.bfloat16)
    store(dv + values, pull, start, length, 0, VALUE, C, BV, EVEN)
    if BETAS == 1:
        row = tl.arange(0, C)
        total = tl.sum(x * error, 1).to(tl.bfloat16)
        tl.store(dbeta + head * length + start + row, total, mask=row < length - start)
    else:
        store(dbeta + values, x * error, start, length, 0, VALUE, C, BV, EVEN)
    before, rest = halves(tl.load(state_at(states, head * count + tile, 0, BV, BK, BV)))
    seen, fine = halves(tl.where(i >= j, tl.dot(query, tl.trans(key)), 0.0))
    out = tl.dot(query, tl.trans(before), acc=tl.dot(query, tl.trans(rest)))
    out = product(seen, fine, u, tl.dot(seen, low, acc=out)) * scale
    store(o + values, out, start, length, 0, VALUE, C, BV, EVEN)
    back = tl.dot(grad, tl.trans(u), acc=tl.dot(grad, tl.trans(low)))
    back, fine = halves(tl.where(i >= j, back, 0.0))
    out = product(back, fine, key, tl.dot(grad, before)) * scale
    store(dq + keys, out, start, length, 0, KEY, C, BK, EVEN)
    out = tl.dot(tl.where(i <= j, tl.dot(u, tl.trans(grad)), 0.0).to(tl.bfloat16), query) * scale
    below, above = tl.dot(-pull, tl.trans(u)), tl.dot(u, tl.trans(-pull))
    twice, fine = halves(tl.where(i > j, below, tl.where(i < j, above, 0.0)))
    out = tl.dot(-pull, before, acc=product(twice, fine, key, out))
    after = tl.load(state_at(states, (tl.num_programs(0) + head) * count + tile, 0, BV, BK, BV))
    store(dk + keys, tl.dot(u, after.to(tl.bfloat16), acc=out), start, length, 0, KEY, C, BK, EVEN)


def segments_of(chunks: int, turns: int, warps: int, betas: int) -> tuple[int, int]:
    """Chunks of a segment, whole tiles of them, and their number: one unless at least four fit beside each other."""
    wanted = min(64, 8 * PROCESSORS // warps) if betas == 1 else 1
    count = (SEGMENTS if betas == 1 else 0) or (1 << wanted.bit_length() - 1 if wanted >= 4 else 1)
    each = triton.cdiv(triton.cdiv(chunks, turns), count) * turns
    return each, triton.cdiv(chunks, each)


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, do: torch.Tensor,
    o: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, dbeta: torch.Tensor,
) -> None:  # fmt: skip
    """q, k, dq, dk (batch, heads, length, key), v, do, o, dv (..., value), beta, dbeta (..., 1 or value), bfloat16."""
    batch, heads, length, key = q.shape
    value, many, betas = v.shape[3], batch * heads, beta.shape[3]
    bk, bv = (max(16, triton.next_power_of_2(size)) for size in (key, value))
    tile = min(TILE, max(CHUNK, triton.next_power_of_2(length)), SHORT if min(bk, bv) < NARROW else TILE)
    chunks, tiles, fits = triton.cdiv(length, CHUNK), triton.cdiv(length, tile), (bk, bv) == (key, value)
    errors, pulls = torch.empty_like(v, dtype=torch.float32), torch.empty_like(v)
    states = torch.empty((2, many, tiles, bv, bk), dtype=torch.float32, device=q.device)
    inverse = torch.empty((many, chunks, 2, CHUNK, CHUNK), dtype=torch.float32, device=q.device)
    even = fits and length % CHUNK == 0
    if betas == 1:
        inverses[(many, chunks)](k, beta, inverse, length, key, CHUNK, bk, even, num_warps=1)
    else:
        likenesses[(many, chunks)](k, inverse, length, key, CHUNK, bk, even, num_warps=1)
    sizes = length, key, value, betas, key**-0.5
    width = min(VALUES, bv, bk)
    each, count = segments_of(chunks, tile // CHUNK, many * bv // 8, betas)
    starts = torch.empty(
        (2, many, count, bv + bk, bk) if count > 1 else 1, dtype=torch.float32, device=q.device
    )
    given = q, k, v, beta, do, errors, pulls, states, inverse, starts, *sizes, each
    options = {
        "C": CHUNK,
        "TURNS": tile // CHUNK,
        "BK": bk,
        "BV": bv,
        "B": width,
        "EVEN": even,
        "STAGES": STAGES,
    }
    options["num_warps"] = width // 16
    if count > 1:
        chains[(many, (bv + bk) // width, 2 * count)](*given, PROBE=True, SPLIT=False, **options)
        hand_on[(many, bv // 16, 2)](starts, count, B=16, BK=bk, BV=bv, num_warps=2)
    chains[(many, bv // width, 2 * count)](*given, PROBE=False, SPLIT=count > 1, **options)
    outputs[(many, tiles)](
        q, k, beta, do, errors, pulls, states, o, dq, dk, dv, dbeta, *sizes,
        C=tile, BK=bk, BV=bv, EVEN=fits and length % tile == 0,
        num_warps=WARPS or (8 if tile > 64 else 4),
    )  # fmt: skip
