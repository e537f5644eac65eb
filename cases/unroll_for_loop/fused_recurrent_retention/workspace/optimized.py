"""Retention and its gradients in chunks: inside a chunk matrix products, from chunk to chunk a state.

With P = (q k^T) * D and dP = (do v^T) * D, where D_ij = g^(i-j) / sqrt(key) for i >= j, a chunk of tokens needs
o = P v and dq = dP k plus what the state before it gives (first token to last), and dk = dP^T q, dv = P^T do plus
what the gradient of the state after it gives (last to first). A program walks one direction of one head, or of a
segment of it where there are too few heads to fill the GPU; then a first kernel finds what every segment adds to the
states and a second hands that on.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

CHUNK, WARPS, STAGES, SEGMENTS = (knob(f"RT_{name}") for name in ("CHUNK", "WARPS", "STAGES", "SEGMENTS"))

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""


@triton.jit
def log_decay(head, heads):
    """log2 of g = 1 - x, x = 2^(-5 - head): from the series, since log2(1 - 2^-20) in float32 has few right digits."""
    x = tl.exp2(-5.0 - (head % heads).to(tl.float32))
    series = 1.0 + x * (1 / 2 + x * (1 / 3 + x * (1 / 4 + x * (1 / 5))))
    return -1.4426950408889634 * x * series


@triton.jit
def load(pointer, start, length, WIDTH, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr):
    """C rows of a (length, WIDTH) matrix from row `start` on, as C x B, zero beyond its edges."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, B)[None, :]
    at = pointer + tl.cast(start, tl.int64) * WIDTH + row * WIDTH + column
    real = (row < length - start) & (column < WIDTH)
    return tl.load(at) if EVEN else tl.load(at, mask=real, other=0.0)


@triton.jit
def store(pointer, value, start, length, WIDTH, C: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr):
    """As load, in bfloat16."""
    row, column = tl.arange(0, C)[:, None], tl.arange(0, B)[None, :]
    at = pointer + tl.cast(start, tl.int64) * WIDTH + row * WIDTH + column
    if EVEN:
        tl.store(at, value.to(tl.bfloat16))
    else:
        tl.store(at, value.to(tl.bfloat16), mask=(row < length - start) & (column < WIDTH))


@triton.jit
def scaled(rows, factor):
    """Rows of bfloat16 times a factor each, in bfloat16 again."""
    return (rows.to(tl.float32) * factor[:, None]).to(tl.bfloat16)


@triton.jit
def state_at(states, which, BK: tl.constexpr, BV: tl.constexpr):
    """Addresses of one state of float32."""
    return (
        states
        + tl.cast(which, tl.int64) * BK * BV
        + tl.arange(0, BK)[:, None] * BV
        + tl.arange(0, BV)[None, :]
    )


@triton.jit
def segment_states(
    q, k, v, do, states, heads, length, KEY, VALUE, scale, segment,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """What each segment adds to the state after it (axis 2 at 0), and to the gradient of the state before it."""
    head, part, count = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    log = log_decay(head, heads)
    token = tl.arange(0, C)
    keys, values = head.to(tl.int64) * length * KEY, head.to(tl.int64) * length * VALUE
    first, whole = part * segment, tl.exp2(C * log)
    chunks = tl.cdiv(tl.minimum(length - first, segment), C)
    state = tl.zeros([BK, BV], tl.float32)
    if tl.program_id(2) == 0:
        until = tl.exp2((C - 1 - token) * log)
        for chunk in tl.range(0, chunks, num_stages=STAGES):
            start = first + chunk * C
            key = load(k + keys, start, length, KEY, C, BK, EVEN)
            value = load(v + values, start, length, VALUE, C, BV, EVEN)
            state = tl.dot(tl.trans(scaled(key, until)), value, acc=state * whole)
        tl.store(state_at(states, head * count + part, BK, BV), state)
    else:
        since = tl.exp2((token + 1) * log) * scale
        for back in tl.range(0, chunks, num_stages=STAGES):
            start = first + (chunks - 1 - back) * C
            query = load(q + keys, start, length, KEY, C, BK, EVEN)
            grad = load(do + values, start, length, VALUE, C, BV, EVEN)
            state = tl.dot(tl.trans(scaled(query, since)), grad, acc=state * whole)
        tl.store(state_at(states, (tl.num_programs(0) + head) * count + part, BK, BV), state)


@triton.jit
def hand_on(states, heads, count, segment, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Turns what segments add into what each one starts from: in place, forwards, or backwards for axis 2 at 1."""
    head, back = tl.program_id(0), tl.program_id(2)
    whole = tl.exp2(segment * log_decay(head, heads))
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows = states + (back * tl.num_programs(0) + head).to(tl.int64) * count * SIZE + at
    state = tl.zeros([BLOCK], tl.float32)
    for turn in tl.range(0, count, num_stages=5):
        row = rows + tl.where(back == 1, count - 1 - turn, turn) * SIZE
        added = tl.load(row)
        tl.store(row, state)
        state = state * whole + added


@triton.jit
def walk(
    q, k, v, do, o, dq, dk, dv, states, heads, length, KEY, VALUE, scale, segment,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, SPLIT: tl.constexpr, EVEN: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """o and dq over a segment, first chunk to last, or (axis 2 at 1) dk and dv, last to first."""
    head, part, count = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    log = log_decay(head, heads)
    token = tl.arange(0, C)
    away = token[:, None] - token[None, :]
    keys, values = head.to(tl.int64) * length * KEY, head.to(tl.int64) * length * VALUE
    first, whole = part * segment, tl.exp2(C * log)
    chunks = tl.cdiv(tl.minimum(length - first, segment), C)
    state = tl.zeros([BK, BV], tl.float32)
    since, until = tl.exp2((token + 1) * log) * scale, tl.exp2((C - 1 - token) * log)
    if tl.program_id(2) == 0:
        near = tl.where(away >= 0, tl.exp2(away * log) * scale, 0.0)
        if SPLIT:
            state = tl.load(state_at(states, head * count + part, BK, BV))
        for chunk in tl.range(0, chunks, num_stages=STAGES):
            start = first + chunk * C
            query = load(q + keys, start, length, KEY, C, BK, EVEN)
            key = load(k + keys, start, length, KEY, C, BK, EVEN)
            value = load(v + values, start, length, VALUE, C, BV, EVEN)
            grad = load(do + values, start, length, VALUE, C, BV, EVEN)
            before = state.to(tl.bfloat16)
            inside = (tl.dot(query, tl.trans(key)) * near).to(tl.bfloat16)
            out = tl.dot(query, before) * since[:, None]
            store(o + values, tl.dot(inside, value, acc=out), start, length, VALUE, C, BV, EVEN)
            inside = (tl.dot(grad, tl.trans(value)) * near).to(tl.bfloat16)
            out = tl.dot(grad, tl.trans(before)) * since[:, None]
            store(dq + keys, tl.dot(inside, key, acc=out), start, length, KEY, C, BK, EVEN)
            state = tl.dot(tl.trans(scaled(key, until)), value, acc=state * whole)
    else:
        near = tl.where(away <= 0, tl.exp2(-away * log) * scale, 0.0)
        if SPLIT:
            state = tl.load(state_at(states, (tl.num_programs(0) + head) * count + part, BK, BV))
        for back in tl.range(0, chunks, num_stages=STAGES):
            start = first + (chunks - 1 - back) * C
            query = load(q + keys, start, length, KEY, C, BK, EVEN)
            key = load(k + keys, start, length, KEY, C, BK, EVEN)
            value = load(v + values, start, length, VALUE, C, BV, EVEN)
            grad = load(do + values, start, length, VALUE, C, BV, EVEN)
            after = state.to(tl.bfloat16)
            inside = (tl.dot(value, tl.trans(grad)) * near).to(tl.bfloat16)
            out = tl.dot(value, tl.trans(after)) * until[:, None]
            store(dk + keys, tl.dot(inside, query, acc=out), start, length, KEY, C, BK, EVEN)
            inside = (tl.dot(key, tl.trans(query)) * near).to(tl.bfloat16)
            out = tl.dot(key, after) * until[:, None]
            store(dv + values, tl.dot(inside, grad, acc=out), start, length, VALUE, C, BV, EVEN)
            state = tl.dot(tl.trans(scaled(query, since)), grad, acc=state * whole)


def segments_of(length: int, heads: int, chunk: int) -> tuple[int, int]:
    """Tokens of a segment and their number: one where heads alone give two programs a processor, else about four."""
    wanted = 1 if heads >= 0.8 * PROCESSORS else min(64, 2 * PROCESSORS // heads)
    segment = triton.cdiv(triton.cdiv(length, SEGMENTS or 1 << wanted.bit_length() - 1), chunk) * chunk
    return segment, triton.cdiv(length, segment)


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor,
    o: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor,
) -> None:  # fmt: skip
    """q, k, dq, dk (batch, heads, length, key), v, do, o, dv (batch, heads, length, value), all bfloat16."""
    batch, heads, length, key = q.shape
    value = v.shape[3]
    bk, bv = (max(16, triton.next_power_of_2(size)) for size in (key, value))
    chunk = min(CHUNK, max(16, triton.next_power_of_2(length)))
    segment, count = segments_of(length, batch * heads, chunk)
    even = length % segment == 0 and segment % chunk == 0 and (bk, bv) == (key, value)
    wide = bk * bv > 64 * 64
    options = {"C": chunk, "BK": bk, "BV": bv, "EVEN": even, "num_warps": WARPS or (8 if wide else 4)}
    options["STAGES"] = STAGES or (2 if wide else 3)
    states = torch.empty(
        (2, batch * heads, count, bk, bv) if count > 1 else 1, dtype=torch.float32, device=q.device
    )
    grid = (batch * heads, count, 2)
    if count > 1:
        segment_states[grid](q, k, v, do, states, heads, length, key, value, key**-0.5, segment, **options)
        block = min(1024, bk * bv)
        hand_on[(batch * heads, bk * bv // block, 2)](
            states, heads, count, segment, SIZE=bk * bv, BLOCK=block, num_warps=4
        )
    walk[grid](
        q,
        k,
        v,
        do,
        o,
        dq,
        dk,
        dv,
        states,
        heads,
        length,
        key,
        value,
        key**-0.5,
        segment,
        SPLIT=count > 1,
        **options,
    )
