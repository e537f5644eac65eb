"""Retention and its gradients in chunks: inside a chunk matrix products, from chunk to chunk a state.

With P = (q k^T) * D and dP = (do v^T) * D, where D_ij = g^(i-j) / sqrt(key) for i >= j, a chunk of tokens needs
o = P v and dq = dP k plus what the state before it gives (first token to last), and dk = dP^T q, dv = P^T do plus
what the gradient of the state after it gives (last to first). A program walks one direction of one head, or of a
segment of it where there are too few heads to fill the GPU; then a first kernel finds what every segment adds to the
states and a second hands that on.

Wider states fill the registers of a program. There another kernel walks: with R(a, b, c) = ((a b^T) * D) c + ..., all
outputs are the same operator, o = R(q, k, v), dq = R(do, v, k) and, backwards in time, dk = R(v, do, q) and
dv = R(k, q, do), whose columns of c do not need each other. A program has COLUMNS of them of one output. Programs
of one head lie side by side, since they read the same chunks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

CHUNK, COLUMNS, WARPS, STAGES, SEGMENTS = (
    knob(f"RT_{name}") for name in ("CHUNK", "COLUMNS", "WARPS", "STAGES", "SEGMENTS")
)

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""


@triton.jit
def log_decay(head, heads):
    """log2 of g = 1 - x, x = 2^(-5 - head): from the series, since log2(1 - 2^-20) in float32 has few right digits."""
    x = tl.exp2(-5.0 - (head % heads).to(tl.float32))
    series = 1.0 + x * (1 / 2 + x * (1 / 3 + x * (1 / 4 + x * (1 / 5))))
    return -1.4426950408889634 * x * series


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
    """What each segment adds to the state after it (axis 0 at 0), and to the gradient of the state before it."""
    head, part, count = tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    log = log_decay(head, heads)
    token = tl.arange(0, C)
    keys, values = head.to(tl.int64) * length * KEY, head.to(tl.int64) * length * VALUE
    first, whole = part * segment, tl.exp2(C * log)
    chunks = tl.cdiv(tl.minimum(length - first, segment), C)
    state = tl.zeros([BK, BV], tl.float32)
    if tl.program_id(0) == 0:
        until = tl.exp2((C - 1 - token) * log)
        for chunk in tl.range(0, chunks, num_stages=STAGES):
            start = first + chunk * C
            key = load(k + keys, start, length, 0, KEY, C, BK, EVEN)
            value = load(v + values, start, length, 0, VALUE, C, BV, EVEN)
            state = tl.dot(tl.trans(scaled(key, until)), value, acc=state * whole)
        tl.store(state_at(states, head * count + part, BK, BV), state)
    else:
        since = tl.exp2((token + 1) * log) * scale
        for back in tl.range(0, chunks, num_stages=STAGES):
            start = first + (chunks - 1 - back) * C
            query = load(q + keys, start, length, 0, KEY, C, BK, EVEN)
            grad = load(do + values, start, length, 0, VALUE, C, BV, EVEN)
            state = tl.dot(tl.trans(scaled(query, since)), grad, acc=state * whole)
        tl.store(state_at(states, (tl.num_programs(1) + head) * count + part, BK, BV), state)


@triton.jit
def hand_on(states, heads, count, segment, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Turns what segments add into what each one starts from: in place, forwards, or backwards for axis 2 at 1."""
    head, back = tl.program_id(0), tl.program_id(2)
    whole = tl.exp2(segment * log_decay(head, heads))
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows = states + (back * tl.num_programs(0) + head).to(tl.int64) * count * SIZE + at
    state = tl.zeros([BLOCK], tl.float32)
    for turn in tl.range(0, count, num_stages=8):
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
    """o and dq over a segment, first chunk to last, or (axis 0 at 1) dk and dv, last to first."""
    head, part, count = tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    log = log_decay(head, heads)
    token = tl.arange(0, C)
    away = token[:, None] - token[None, :]
    keys, values = head.to(tl.int64) * length * KEY, head.to(tl.int64) * length * VALUE
    first, whole = part * segment, tl.exp2(C * log)
    chunks = tl.cdiv(tl.minimum(length - first, segment), C)
    state = tl.zeros([BK, BV], tl.float32)
    since, until = tl.exp2((token + 1) * log) * scale, tl.exp2((C - 1 - token) * log)
    if tl.program_id(0) == 0:
        near = tl.where(away >= 0, tl.exp2(away * log) * scale, 0.0)
        if SPLIT:
            state = tl.load(state_at(states, head * count + part, BK, BV))
        for chunk in tl.range(0, chunks, num_stages=STAGES):
            start = first + chunk * C
            query = load(q + keys, start, length, 0, KEY, C, BK, EVEN)
            key = load(k + keys, start, length, 0, KEY, C, BK, EVEN)
            value = load(v + values, start, length, 0, VALUE, C, BV, EVEN)
            grad = load(do + values, start, length, 0, VALUE, C, BV, EVEN)
            before = state.to(tl.bfloat16)
            inside = (tl.dot(query, tl.trans(key)) * near).to(tl.bfloat16)
            out = tl.dot(query, before) * since[:, None]
            store(o + values, tl.dot(inside, value, acc=out), start, length, 0, VALUE, C, BV, EVEN)
            inside = (tl.dot(grad, tl.trans(value)) * near).to(tl.bfloat16)
            out = tl.dot(grad, tl.trans(before)) * since[:, None]
            store(dq + keys, tl.dot(inside, key, acc=out), start, length, 0, KEY, C, BK, EVEN)
            state = tl.dot(tl.trans(scaled(key, until)), value, acc=state * whole)
    else:
        near = tl.where(away <= 0, tl.exp2(-away * log) * scale, 0.0)
        if SPLIT:
            state = tl.load(state_at(states, (tl.num_programs(1) + head) * count + part, BK, BV))
        for back in tl.range(0, chunks, num_stages=STAGES):
            start = first + (chunks - 1 - back) * C
            query = load(q + keys, start, length, 0, KEY, C, BK, EVEN)
            key = load(k + keys, start, length, 0, KEY, C, BK, EVEN)
            value = load(v + values, start, length, 0, VALUE, C, BV, EVEN)
            grad = load(do + values, start, length, 0, VALUE, C, BV, EVEN)
            after = state.to(tl.bfloat16)
            inside = (tl.dot(value, tl.trans(grad)) * near).to(tl.bfloat16)
            out = tl.dot(value, tl.trans(after)) * until[:, None]
            store(dk + keys, tl.dot(inside, query, acc=out), start, length, 0, KEY, C, BK, EVEN)
            inside = (tl.dot(key, tl.trans(query)) * near).to(tl.bfloat16)
            out = tl.dot(key, after) * until[:, None]
            store(dv + values, tl.dot(inside, grad, acc=out), start, length, 0, VALUE, C, BV, EVEN)
            state = tl.dot(tl.trans(scaled(query, since)), grad, acc=state * whole)


@triton.jit
def walk_columns(
    a, b, c, out, states, before, first, log, start, chunks, length, A_WIDTH, C_WIDTH, scale,
    BACK: tl.constexpr, TURNED: tl.constexpr, C: tl.constexpr, BA: tl.constexpr, BC: tl.constexpr,
    B: tl.constexpr, SPLIT: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Columns `first` to `first` + B of R(a, b, c) over the chunks from token `start` on."""
    token, column = tl.arange(0, C), first + tl.arange(0, B)
    away = token[:, None] - token[None, :]
    since, until = tl.exp2((token + 1) * log), tl.exp2((C - 1 - token) * log)
    whole = tl.exp2(C * log)
    if BACK:
        away, since, until = -away, until, since * scale
    else:
        since *= scale
    near = tl.where(away >= 0, tl.exp2(away * log) * scale, 0.0)
    state = tl.zeros([BA, B], tl.float32)
    if SPLIT:
        if TURNED:
            rows = column[:, None] * BA + tl.arange(0, BA)[None, :]
            state = tl.trans(tl.load(states + tl.cast(before, tl.int64) * BA * BC + rows))
        else:
            rows = tl.arange(0, BA)[:, None] * BC + column[None, :]
            state = tl.load(states + tl.cast(before, tl.int64) * BA * BC + rows)
    for turn in tl.range(0, chunks, num_stages=STAGES):
        at = start + (chunks - 1 - turn if BACK else turn) * C
        left = load(a, at, length, 0, A_WIDTH, C, BA, EVEN)
        right = load(b, at, length, 0, A_WIDTH, C, BA, EVEN)
        wanted = load(c, at, length, first, C_WIDTH, C, B, EVEN)
        inside = (tl.dot(left, tl.trans(right)) * near).to(tl.bfloat16)
        found = tl.dot(left, state.to(tl.bfloat16)) * since[:, None]
        store(out, tl.dot(inside, wanted, acc=found), at, length, first, C_WIDTH, C, B, EVEN)
        state = tl.dot(tl.trans(right), scaled(wanted, until), acc=state * whole)


@triton.jit
def walk_each(
    q, k, v, do, o, dq, dk, dv, states, heads, length, KEY, VALUE, scale, segment,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, B: tl.constexpr, SPLIT: tl.constexpr,
    EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """B columns of one output over a segment; axis 0 counts those of o, dv, dq and dk."""
    block, head, part, count = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    log = log_decay(head, heads)
    keys, values = head.to(tl.int64) * length * KEY, head.to(tl.int64) * length * VALUE
    q, k, dq, dk = q + keys, k + keys, dq + keys, dk + keys
    v, do, o, dv = v + values, do + values, o + values, dv + values
    start = part * segment
    chunks = tl.cdiv(tl.minimum(length - start, segment), C)
    before, after = head * count + part, (tl.num_programs(1) + head) * count + part
    if block < BV // B:
        walk_columns(
            q, k, v, o, states, before, block * B, log, start, chunks, length, KEY, VALUE, scale,
            False, False, C, BK, BV, B, SPLIT, EVEN, STAGES,
        )  # fmt: skip
    elif block < 2 * (BV // B):
        walk_columns(
            k, q, do, dv, states, after, block * B - BV, log, start, chunks, length, KEY, VALUE, scale,
            True, False, C, BK, BV, B, SPLIT, EVEN, STAGES,
        )  # fmt: skip
    elif block < 2 * (BV // B) + BK // B:
        walk_columns(
            do, v, k, dq, states, before, block * B - 2 * BV, log, start, chunks, length, VALUE, KEY, scale,
            False, True, C, BV, BK, B, SPLIT, EVEN, STAGES,
        )  # fmt: skip
    else:
        walk_columns(
            v, do, q, dk, states, after, block * B - 2 * BV - BK, log, start, chunks, length, VALUE, KEY, scale,
            True, True, C, BV, BK, B, SPLIT, EVEN, STAGES,
        )  # fmt: skip


def segments_of(length: int, programs: int, chunk: int) -> tuple[int, int]:
    """Tokens of a segment and their number: one where there are two programs a processor anyway, else about four."""
    wanted = 1 if programs >= 1.6 * PROCESSORS else max(1, min(64, 4 * PROCESSORS // programs))
    segment = triton.cdiv(triton.cdiv(length, SEGMENTS or 1 << wanted.bit_length() - 1), chunk) * chunk
    return segment, triton.cdiv(length, segment)


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor,
    o: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor,
) -> None:  # fmt: skip
    """q, k, dq, dk (batch, heads, length, key), v, do, o, dv (batch, heads, length, value), all bfloat16."""
    batch, heads, length, key = q.shape
    value, many = v.shape[3], batch * heads
    bk, bv = (max(16, triton.next_power_of_2(size)) for size in (key, value))
    wide = bk * bv > 64 * 64
    columns = min(COLUMNS or 64 * wide, bk, bv)
    each = 2 * (bk + bv) // columns if columns else 2
    chunk = min(CHUNK, max(16, triton.next_power_of_2(length)))
    segment, count = segments_of(length, many * each, chunk)
    even = length % segment == 0 and segment % chunk == 0 and (bk, bv) == (key, value)
    # Two programs of one stage share a processor, where one of two stages is alone.
    options = {"C": chunk, "BK": bk, "BV": bv, "EVEN": even, "STAGES": STAGES or (1 if columns else 3)}
    states = torch.empty((2, many, count, bk, bv) if count > 1 else 1, dtype=torch.float32, device=q.device)
    sizes = heads, length, key, value, key**-0.5, segment
    if count > 1:
        warps = 8 if wide else 4
        segment_states[(2, many, count)](q, k, v, do, states, *sizes, **options, num_warps=WARPS or warps)
        block = min(256, bk * bv)
        hand_on[(many, bk * bv // block, 2)](
            states, heads, count, segment, SIZE=bk * bv, BLOCK=block, num_warps=1
        )
    outputs = q, k, v, do, o, dq, dk, dv, states
    options |= {"SPLIT": count > 1, "num_warps": WARPS or 4}
    if columns:
        walk_each[(each, many, count)](*outputs, *sizes, B=columns, **options)
    else:
        walk[(2, many, count)](*outputs, *sizes, **options)
