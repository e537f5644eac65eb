"""The RWKV6 recurrence in chunks: inside a chunk matrix products, from chunk to chunk a state.

With b the running sum of w, token i sees token j < i of its chunk through sum over channels of
r_i k_j exp(b_{i-1} - b_j). As a matrix product that needs the decay split into a factor of i and one of j around
some m: exp(b_{i-1} - m) exp(m - b_j). Where no channel of a chunk decays below 2^-160, m is half of its sum and one
product does. Elsewhere a factor would overflow, and the chunk is halved again and again: at every level tokens
of the upper half of a block see those of the lower half around the last token of the lower half, where both
factors are at most one. log2(CHUNK) products cover each pair just once, exactly, whatever the decays are.
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
def halved(query, key, since, before, C: tl.constexpr, BK: tl.constexpr, LEVELS: tl.constexpr):
    """What token i sees of token j < i, C x C: each pair in the one level whose block's middle lies between them."""
    row = tl.arange(0, C)
    seen = tl.zeros([C, C], tl.float32)
    for level in tl.range(LEVELS, num_stages=1):
        upper = (row >> level) & 1
        middle = ((row >> (level + 1)) << (level + 1)) + (1 << level) - 1
        around = tl.gather(since, tl.broadcast_to(middle[:, None], [C, BK]), 0)
        exponent = tl.where(upper[:, None] == 1, before - around, around - since)
        late, soon = times_power(query, exponent), times_power(key, exponent)
        same = (row[:, None] >> (level + 1)) == (row[None, :] >> (level + 1))
        pairs = same & (upper[:, None] == 1) & (upper[None, :] == 0)
        seen += tl.where(pairs, tl.dot(late, tl.trans(soon)), 0.0)
    return seen


@triton.jit
def segment_states(
    k, v, w, states, decays, length, KEY, VALUE, segment,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
    LEVELS: tl.constexpr,
):  # fmt: skip
    """What each segment adds to the state after it, and the sum of its decays."""
    head, part, count, first = tl.program_id(0), tl.program_id(1), tl.num_programs(1), tl.program_id(2) * BV
    keys, values = head.to(tl.int64) * length * KEY, head.to(tl.int64) * length * VALUE
    state = tl.zeros([BK, BV], tl.float32)
    total = tl.zeros([BK], tl.float32)
    for chunk in tl.range(0, tl.cdiv(tl.minimum(length - part * segment, segment), C), num_stages=STAGES):
        start = part * segment + chunk * C
        key = load(k + keys, start, length, 0, KEY, C, BK, EVEN)
        value = load(v + values, start, length, first, VALUE, C, BV, EVEN)
        decay = tl.maximum(load(w + keys, start, length, 0, KEY, C, BK, EVEN) * LOG2E, LEAST)
        whole, since = tl.sum(decay, 0), tl.cumsum(decay, 0)
        rest = times_power(key, tl.minimum(whole[None, :] - since, 0.0))
        state = tl.dot(tl.trans(rest), value, acc=state * tl.exp2(whole)[:, None])
        total += whole
    at = (head * count + part).to(tl.int64) * BK + tl.arange(0, BK)
    column = first + tl.arange(0, BV)[None, :]
    width = tl.num_programs(2) * BV
    tl.store(states + at[:, None] * width + column, state)
    tl.store(decays + at, total)


@triton.jit
def hand_on(states, decays, count, BK: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Turns what segments add into what each one starts from, in place."""
    head = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    state = tl.zeros([ROWS, WIDTH], tl.float32)
    for part in tl.range(0, count, num_stages=4):
        at = (head * count + part) * BK + row
        here = states + at[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        added, total = tl.load(here), tl.load(decays + at)
        tl.store(here, state)
        state = state * tl.exp2(total)[:, None] + added


@triton.jit
def walk(
    r, k, v, w, u, o, states, heads, length, KEY, VALUE, segment,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
    LEVELS: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """o of BV columns over a segment, chunk after chunk."""
    head, part, count, first = tl.program_id(0), tl.program_id(1), tl.num_programs(1), tl.program_id(2) * BV
    keys, values = head.to(tl.int64) * length * KEY, head.to(tl.int64) * length * VALUE
    row, i = tl.arange(0, C), tl.arange(0, BK)
    bonus = tl.load(u + (head % heads) * KEY + i, mask=i < KEY, other=0.0)
    state = tl.zeros([BK, BV], tl.float32)
    if SPLIT:
        at = (head * count + part).to(tl.int64) * BK + i
        column = first + tl.arange(0, BV)[None, :]
        state = tl.load(states + at[:, None] * (tl.num_programs(2) * BV) + column)
    for chunk in tl.range(0, tl.cdiv(tl.minimum(length - part * segment, segment), C), num_stages=STAGES):
        start = part * segment + chunk * C
        query = load(r + keys, start, length, 0, KEY, C, BK, EVEN)
        key = load(k + keys, start, length, 0, KEY, C, BK, EVEN)
        value = load(v + values, start, length, first, VALUE, C, BV, EVEN)
        decay = tl.maximum(load(w + keys, start, length, 0, KEY, C, BK, EVEN) * LOG2E, LEAST)
        since = tl.cumsum(decay, 0)
        before, whole = since - decay, tl.sum(decay, 0)
        if tl.min(whole, 0) > SAFE:
            middle = 0.5 * whole[None, :]
            late, soon = times_power(query, before - middle), times_power(key, middle - since)
            seen = tl.dot(late, tl.trans(soon))
        else:
            seen = halved(query, key, since, before, C, BK, LEVELS)
        itself = tl.sum(query.to(tl.float32) * key.to(tl.float32) * bonus[None, :], 1)
        seen = tl.where(row[:, None] > row[None, :], seen, 0.0)
        seen = tl.where(row[:, None] == row[None, :], itself[:, None], seen).to(tl.bfloat16)
        out = tl.dot(times_power(query, before), state.to(tl.bfloat16))
        store(o + values, tl.dot(seen, value, acc=out), start, length, first, VALUE, C, BV, EVEN)
        rest = times_power(key, tl.minimum(whole[None, :] - since, 0.0))
        state = tl.dot(tl.trans(rest), value, acc=state * tl.exp2(whole)[:, None])


def segments_of(length: int, programs: int, chunk: int) -> tuple[int, int]:
    """Tokens of a segment and their number: one where heads alone fill the GPU, else about two programs a processor."""
    wanted = 1 if programs >= 0.8 * PROCESSORS else min(64, 2 * PROCESSORS // programs)
    segment = triton.cdiv(triton.cdiv(length, SEGMENTS or 1 << wanted.bit_length() - 1), chunk) * chunk
    return segment, triton.cdiv(length, segment)


def run(
    r: torch.Tensor, k: torch.Tensor, v: torch.Tensor, w: torch.Tensor, u: torch.Tensor, o: torch.Tensor
) -> None:
    """r, k (batch, heads, length, key), v, o (batch, heads, length, value) bfloat16; w as k, u (heads, key) float32."""
    batch, heads, length, key = r.shape
    value, many = v.shape[3], batch * heads
    bk, bv = (max(16, triton.next_power_of_2(size)) for size in (key, value))
    bv = min(VALUES or 64, bv)
    columns = triton.next_power_of_2(triton.cdiv(value, bv))
    chunk = min(CHUNK, max(16, triton.next_power_of_2(length)), 4096 // bk)
    segment, count = segments_of(length, many * columns, chunk)
    options = {
        "C": chunk,
        "BK": bk,
        "BV": bv,
        "LEVELS": chunk.bit_length() - 1,
        "num_warps": WARPS or min(8, max(2, chunk * bk // 512)),
    }
    options["EVEN"] = length % segment == 0 and bk == key and columns * bv == value
    options["STAGES"] = STAGES or 2
    states = torch.empty(
        (many, count, bk, columns * bv) if count > 1 else 1, dtype=torch.float32, device=r.device
    )
    decays = torch.empty((many, count, bk) if count > 1 else 1, dtype=torch.float32, device=r.device)
    grid = (many, count, columns)
    if count > 1:
        segment_states[grid](k, v, w, states, decays, length, key, value, segment, **options)
        width = columns * bv
        hand_on[(many, bk // 8)](states, decays, count, BK=bk, WIDTH=width, ROWS=8, num_warps=4)
    walk[grid](r, k, v, w, u, o, states, heads, length, key, value, segment, SPLIT=count > 1, **options)
