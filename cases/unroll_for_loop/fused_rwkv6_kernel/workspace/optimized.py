"""The RWKV6 recurrence in chunks: inside a chunk matrix products, from chunk to chunk a state.

With b the running sum of w, token i sees token j < i of its chunk through sum over channels of
r_i k_j exp(b_{i-1} - b_j). As a matrix product that needs the decay split into a factor of i and one of j around
some m: exp(b_{i-1} - m) exp(m - b_j). Where no channel of a chunk decays below 2^-160, m is half of its sum and one
product does. Elsewhere a factor would overflow, and the chunk is halved again and again: at every level tokens
of the upper half of a block see those of the lower half around the last token of the lower half, where both
factors are at most one. log2(CHUNK) products cover each pair just once, exactly, whatever the decays are.

A first kernel computes, for all chunks at once, what each needs and no state is in: what tokens see of each other,
queries and keys with their decays, and what is left of the state before. Sums of decays are products with matrices of
zeros and ones: no scan along tokens, and no two layouts. What then walks from chunk to chunk is two products.
Four warps are what 64 tokens take: of eight, Triton gives pairs of warps the same work.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

CHUNK, VALUES, WARPS, STAGES, SEGMENTS = (
    knob(f"RW_{name}") for name in ("CHUNK", "VALUES", "WARPS", "STAGES", "SEGMENTS")
)

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

LOG2E = tl.constexpr(1.4426950408889634)
"""Decays are turned into powers of two once, when they are loaded."""

LEAST = tl.constexpr(-160.0)
"""Decays below 2^-160 are taken for it: nothing is left either way, and running sums keep their digits."""

SAFE = tl.constexpr(-160.0)
"""Sum of a chunk's decays down to which one product does: half of it is left, and 2^80 times a bfloat16 is finite."""


@triton.jit
def tile_at(pointer, which, ROWS: tl.constexpr, WIDTH: tl.constexpr, first, B: tl.constexpr):
    """Addresses of columns `first` to `first` + B of the matrix `which`, ROWS x WIDTH, in a row of such."""
    row, column = tl.arange(0, ROWS)[:, None], first + tl.arange(0, B)[None, :]
    return pointer + tl.cast(which, tl.int64) * ROWS * WIDTH + row * WIDTH + column


@triton.jit
def load(pointer, start, length, first, WIDTH, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr):
    """Columns `first` on of C rows of a (length, WIDTH) matrix from row `start` on, as C x B, zero beyond its edges."""
    row, column = tl.arange(0, C)[:, None], first + tl.arange(0, B)[None, :]
    at = pointer + tl.cast(start, tl.int64) * WIDTH + row * WIDTH + column
    real = (row < length - start) & (column < WIDTH)
    return tl.load(at) if EVEN else tl.load(at, mask=real, other=0.0)


@triton.jit
def store(pointer, value, start, length, first, WIDTH, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr):
    """As load, in bfloat16."""
    row, column = tl.arange(0, C)[:, None], first + tl.arange(0, B)[None, :]
    at = pointer + tl.cast(start, tl.int64) * WIDTH + row * WIDTH + column
    if EVEN:
        tl.store(at, value.to(tl.bfloat16))
    else:
        tl.store(at, value.to(tl.bfloat16), mask=(row < length - start) & (column < WIDTH))


@triton.jit
def times_power(x, exponent):
    """x 2^exponent in bfloat16."""
    return (x.to(tl.float32) * tl.exp2(exponent)).to(tl.bfloat16)


@triton.jit
def halves(x):
    """float32 as the sum of two bfloat16, to the last few bits."""
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def summed(which, high, low):
    """Sums of the rows of high + low that each row of a matrix of zeros and ones names."""
    return tl.dot(which.to(tl.bfloat16), high, acc=tl.dot(which.to(tl.bfloat16), low))


@triton.jit
def halved(query, key, high, low, levels, C: tl.constexpr):
    """What token i sees of token j < i, C x C: each pair in the one level whose block's middle lies between them."""
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    seen = tl.zeros([C, C], tl.float32)
    for level in tl.range(levels, num_stages=1):
        upper = ((i >> level) & 1) == 1
        middle = ((i >> (level + 1)) << (level + 1)) + (1 << level)
        around = (upper & (j >= middle) & (j < i)) | ((upper == 0) & (j > i) & (j < middle))
        power = tl.exp2(summed(around, high, low))
        late = (query.to(tl.float32) * power).to(tl.bfloat16)
        soon = (key.to(tl.float32) * power).to(tl.bfloat16)
        pairs = ((i >> (level + 1)) == (j >> (level + 1))) & upper & (((j >> level) & 1) == 0)
        seen += tl.where(pairs, tl.dot(late, tl.trans(soon)), 0.0)
    return seen


@triton.jit(do_not_specialize=["levels"])
def prepare(
    r, k, w, u, queries, keys, seen, left, heads, length, KEY, levels,
    C: tl.constexpr, BK: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Of a chunk: r since its start, k until its end, decayed; what tokens see of tokens; what is left of a state."""
    head, chunk = tl.program_id(0), tl.program_id(1)
    which, start = head.to(tl.int64) * tl.num_programs(1) + chunk, chunk * C
    rows = head.to(tl.int64) * length * KEY
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    found = tl.zeros([C, C], tl.float32)
    itself = tl.zeros([C, C], tl.float32)
    for first in tl.range(0, BK, B, num_stages=1):
        channel = first + tl.arange(0, B)
        query = load(r + rows, start, length, first, KEY, C, B, EVEN)
        key = load(k + rows, start, length, first, KEY, C, B, EVEN)
        high, low = halves(tl.maximum(load(w + rows, start, length, first, KEY, C, B, EVEN) * LOG2E, LEAST))
        bonus = tl.load(u + (head % heads) * KEY + channel, mask=channel < KEY, other=0.0)[None, :]
        before, since = summed(j < i, high, low), summed(j <= i, high, low)
        whole = tl.min(since, 0)
        tl.store(left + which * BK + channel, tl.exp2(whole))
        tl.store(tile_at(queries, which, C, BK, first, B), times_power(query, before))
        tl.store(tile_at(keys, which, C, BK, first, B), times_power(key, whole[None, :] - since))
        if tl.min(whole, 0) > SAFE:
            middle = 0.5 * whole[None, :]
            late, soon = times_power(query, before - middle), times_power(key, middle - since)
            found += tl.dot(late, tl.trans(soon))
        else:
            found += halved(query, key, high, low, levels, C)
        itself = tl.dot((query.to(tl.float32) * bonus).to(tl.bfloat16), tl.trans(key), acc=itself)
    found = tl.where(i > j, found, tl.where(i == j, itself, 0.0)).to(tl.bfloat16)
    tl.store(tile_at(seen, which, C, C, 0, C), found)


@triton.jit
def segment_states(
    v, keys, left, states, lefts, length, VALUE, chunks, each,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """What each segment, of `each` chunks, adds to the state after it, and what it leaves of the one before."""
    head, part, count, first = tl.program_id(0), tl.program_id(1), tl.num_programs(1), tl.program_id(2) * BV
    values = v + head.to(tl.int64) * length * VALUE
    state = tl.zeros([BV, BK], tl.float32)
    rest = tl.full([BK], 1.0, tl.float32)
    for turn in tl.range(0, tl.minimum(chunks - part * each, each), num_stages=STAGES):
        chunk = part * each + turn
        which = head.to(tl.int64) * chunks + chunk
        key = tl.load(tile_at(keys, which, C, BK, 0, BK))
        value = load(values, chunk * C, length, first, VALUE, C, BV, EVEN)
        stays = tl.load(left + which * BK + tl.arange(0, BK))
        state = tl.dot(tl.trans(value), key, acc=state * stays[None, :])
        rest *= stays
    which = head * count + part
    tl.store(tile_at(states, which * tl.num_programs(2) + tl.program_id(2), BV, BK, 0, BK), state)
    tl.store(lefts + which.to(tl.int64) * BK + tl.arange(0, BK), rest)


@triton.jit
def hand_on(states, lefts, count, BK: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Turns what segments add into what each one starts from, in place: ROWS of WIDTH rows of values."""
    head, column = tl.program_id(0), tl.arange(0, BK)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    state = tl.zeros([ROWS, BK], tl.float32)
    for part in tl.range(0, count, num_stages=8):
        which = (head * count + part).to(tl.int64)
        here = states + which * WIDTH * BK + row * BK + column[None, :]
        added, stays = tl.load(here), tl.load(lefts + which * BK + column)
        tl.store(here, state)
        state = state * stays[None, :] + added


@triton.jit
def walk(
    v, queries, keys, seen, left, o, states, length, VALUE, chunks, each,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """o of BV columns over a segment, chunk after chunk; the state is values x keys."""
    head, part, count, first = tl.program_id(0), tl.program_id(1), tl.num_programs(1), tl.program_id(2) * BV
    values = head.to(tl.int64) * length * VALUE
    state = tl.zeros([BV, BK], tl.float32)
    if SPLIT:
        block = (head * count + part) * tl.num_programs(2) + tl.program_id(2)
        state = tl.load(tile_at(states, block, BV, BK, 0, BK))
    for turn in tl.range(0, tl.minimum(chunks - part * each, each), num_stages=STAGES):
        chunk = part * each + turn
        which = head.to(tl.int64) * chunks + chunk
        query = tl.load(tile_at(queries, which, C, BK, 0, BK))
        key = tl.load(tile_at(keys, which, C, BK, 0, BK))
        value = load(v + values, chunk * C, length, first, VALUE, C, BV, EVEN)
        near = tl.load(tile_at(seen, which, C, C, 0, C))
        stays = tl.load(left + which * BK + tl.arange(0, BK))
        out = tl.dot(near, value, acc=tl.dot(query, tl.trans(state.to(tl.bfloat16))))
        store(o + values, out, chunk * C, length, first, VALUE, C, BV, EVEN)
        state = tl.dot(tl.trans(value), key, acc=state * stays[None, :])


def segments_of(chunks: int, programs: int) -> tuple[int, int]:
    """Chunks of a segment and their number: one where heads alone fill the GPU, else about two programs a processor."""
    wanted = 1 if programs >= 0.8 * PROCESSORS else min(64, 2 * PROCESSORS // programs)
    each = triton.cdiv(chunks, SEGMENTS or 1 << wanted.bit_length() - 1)
    return each, triton.cdiv(chunks, each)


def run(
    r: torch.Tensor, k: torch.Tensor, v: torch.Tensor, w: torch.Tensor, u: torch.Tensor, o: torch.Tensor
) -> None:
    """r, k (batch, heads, length, key), v, o (batch, heads, length, value) bfloat16; w as k, u (heads, key) float32."""
    batch, heads, length, key = r.shape
    value, many = v.shape[3], batch * heads
    bk, width = (max(16, triton.next_power_of_2(size)) for size in (key, value))
    bv = min(VALUES or 64, width)
    chunk = min(CHUNK, max(16, triton.next_power_of_2(length)))
    chunks, even, warps = triton.cdiv(length, chunk), length % chunk == 0, WARPS or max(1, chunk // 16)
    each, count = segments_of(chunks, many * width // bv)
    queries, keys = torch.empty((2, many, chunks, chunk, bk), dtype=torch.bfloat16, device=r.device)
    seen = torch.empty((many, chunks, chunk, chunk), dtype=torch.bfloat16, device=r.device)
    left = torch.empty((many, chunks, bk), dtype=torch.float32, device=r.device)
    prepare[(many, chunks)](
        r, k, w, u, queries, keys, seen, left, heads, length, key, chunk.bit_length() - 1,
        C=chunk, BK=bk, B=min(64, bk), EVEN=even and bk == key, num_warps=warps,
    )  # fmt: skip
    options = {"C": chunk, "BK": bk, "BV": bv, "EVEN": even and width == value, "num_warps": warps}
    options["STAGES"] = STAGES or 3
    states = torch.empty((many, count, width, bk) if count > 1 else 1, dtype=torch.float32, device=r.device)
    lefts = torch.empty((many, count, bk) if count > 1 else 1, dtype=torch.float32, device=r.device)
    grid = (many, count, width // bv)
    if count > 1:
        segment_states[grid](v, keys, left, states, lefts, length, value, chunks, each, **options)
        hand_on[(many, width // 8)](states, lefts, count, BK=bk, WIDTH=width, ROWS=8, num_warps=1)
    options["SPLIT"] = count > 1
    walk[grid](v, queries, keys, seen, left, o, states, length, value, chunks, each, **options)
