"""y = (x - mean) / sqrt(variance + eps) * weight[head]: x read once, y written once, for heads of any size.

A row is one head of one batch entry; rows lie one after another, so that a row's head is its number modulo the heads.

- Narrow rows, at most TILE elements: tiles of whole rows in programs of one warp, which stay.
- Rows up to WIDEST elements: a row a program, in registers from its mean to its result.
- Wider rows: the same for each chunk of CHUNK elements. A program publishes its chunk's mean and squares about it in a
  64-bit word and waits until those of all chunks of its row are there. Programs start in the order of their numbers and
  there are no more chunks in a row than multiprocessors, so those that are waited for always get to run.
- Rows with more chunks than multiprocessors: one launch for the words, a second for the result, which walks
  backwards so that what was read last is still in the L2 cache.

Moments are merged as Chan, Golub and LeVeque do: squares about each part's own mean, so that nothing cancels. Reads
of x pass by the L1 cache, so that the weights stay in it.
"""

from __future__ import annotations

from functools import cache
from math import gcd

import torch
import triton
import triton.language as tl
from knobs import knob

TILE = knob("LN_TILE") or 1024
"""Elements a warp holds: 32 a thread, four 16-byte loads."""

WIDEST = knob("LN_WIDEST") or 16384
CHUNK = knob("LN_CHUNK") or 8192
STAGES = knob("LN_STAGES")
RESIDENT = knob("LN_RESIDENT") or 32

REGISTERS, NARROW_REGISTERS, MORE_REGISTERS = 64, 80, 96
"""Of a thread at the most: for 32 warps on a multiprocessor, for 25, and where elements are loaded one by one."""

REGISTER_FILE = 65536
"""Registers of a multiprocessor."""

VECTOR = 16
"""Bytes of the widest load; rows whose length in bytes this divides are read so."""

MOST_WARPS = 32
MOST_ROWS = 64
MOST_PARTS = 512
"""Of a row in two launches; each program of the second reads the words of all."""

SIGN = tl.constexpr(-(2**31))
"""Marks a published word in the sign of its squares, which have none of their own: memory starts as zeros."""

LOW = tl.constexpr(2**32 - 1)
REST = tl.constexpr(2**31 - 1)


@cache
def processors() -> int:
    """Streaming multiprocessors of the GPU; an H200's where there is none."""
    return torch.cuda.get_device_properties().multi_processor_count if torch.cuda.is_available() else 132


@triton.jit
def narrow_rows(
    x, weight, y, rows, heads, units, eps, UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    SAME: tl.constexpr, FULL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Tiles of ROWS rows of units * UNIT <= WIDTH columns; as a product it tells the compiler how rows are aligned.

    SAME: every tile of a program has the same heads, and its weights are loaded once. FULL: columns are WIDTH.
    """
    columns = units * UNIT
    column = tl.arange(0, WIDTH)[None, :]
    real = column < columns
    if SAME:
        head = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]) % heads
        factor = tl.load(weight + head * columns + column, mask=real, other=0)
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        first, there = row.to(tl.int64) * columns, real & (row < rows)
        # loads with a cache hint are never pipelined
        value = tl.load(x + first + column, mask=there, other=0, cache_modifier=".cg" if STAGES == 1 else "")
        value = value.to(tl.float32)
        if not SAME:
            factor = tl.load(weight + row % heads * columns + column, mask=there, other=0)
        centred = value - tl.sum(value, 1, keep_dims=True) / columns
        squares = centred * centred if FULL else tl.where(real, centred * centred, 0)
        scale = tl.rsqrt(tl.sum(squares, 1, keep_dims=True) / columns + eps)
        result = centred * scale * factor.to(tl.float32)
        tl.store(y + first + column, result.to(y.dtype.element_ty), mask=there)


@triton.jit
def read(x, column, columns):
    """Columns of the row that x points to, as float32; those that do not exist are zero."""
    return tl.load(x + column, mask=column < columns, other=0, cache_modifier=".cg").to(tl.float32)


@triton.jit
def write(value, mean, scale, weight, y, column, columns):
    """Columns of the row that y points to."""
    factor = tl.load(weight + column, mask=column < columns, other=0, eviction_policy="evict_last")
    result = (value - mean) * scale * factor.to(tl.float32)
    tl.store(y + column, result.to(y.dtype.element_ty), mask=column < columns)


@triton.jit
def square_about(value, mean, column, columns):
    """(value - mean)^2 of the columns that exist."""
    centred = tl.where(column < columns, value - mean, 0)
    return centred * centred


@triton.jit
def packed(mean, squares):
    """Both as they are published, in one word."""
    low = (squares.to(tl.int32, bitcast=True) | SIGN).to(tl.int64) & LOW
    return mean.to(tl.int32, bitcast=True).to(tl.int64) << 32 | low


@triton.jit
def moments(words, parts, columns, extra, CHUNK: tl.constexpr, LANES: tl.constexpr):
    """Mean and squares about it of a row, once all of its parts are published.

    A part is every parts-th chunk of `columns`; the first has `extra` ones besides.
    """
    part = tl.arange(0, LANES)
    found = tl.load(words + part, mask=part < parts, other=1, volatile=True)
    while tl.min(tl.where(found == 0, 0, 1), 0) == 0:
        found = tl.load(words + part, mask=part < parts, other=1, volatile=True)
    rounds = columns // (parts * CHUNK)
    rest = tl.minimum(tl.maximum(columns - (rounds * parts + part) * CHUNK, 0), CHUNK)
    count = rounds * CHUNK + rest + tl.where(part == 0, extra, 0)
    count = tl.where(part < parts, count, 0).to(tl.float32)
    means = (found >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    squares = (found.to(tl.int32) & REST).to(tl.float32, bitcast=True)
    mean = tl.sum(count * means, 0) / (columns + extra)
    apart = means - mean
    return mean, tl.sum(tl.where(part < parts, squares, 0) + count * apart * apart, 0)


@triton.jit
def row_chunks(
    x, weight, y, words, heads, chunks, units, eps, UNIT: tl.constexpr, ALIGNED: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """A chunk of LOW + HIGH columns of one row, in registers while the other chunks' words arrive, if there are any.

    `words` starts as zeros. LOW is written before HIGH's weight is read, to need fewer registers. Rows that start
    anywhere (UNIT < ALIGNED) are walked from one multiple of ALIGNED elements to another, and the first chunk has the
    few columns before and after them besides.
    """
    columns = units * UNIT
    row, chunk = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    first, head, body = row * columns, 0, columns
    if UNIT < ALIGNED:
        head = ((ALIGNED - first % ALIGNED) % ALIGNED).to(tl.int32)
        body = (columns - head) // ALIGNED * ALIGNED
        first = (first + head) // ALIGNED * ALIGNED
    x += first
    y += first
    weight += row % heads * columns + head
    left = chunk * (LOW + HIGH) + tl.arange(0, LOW)
    right = chunk * (LOW + HIGH) + LOW + tl.arange(0, HIGH)
    low, high = read(x, left, body), read(x, right, body)
    count = tl.minimum(tl.maximum(body - chunk * (LOW + HIGH), 0), LOW + HIGH)
    total = tl.sum(low, 0) + tl.sum(high, 0)
    if UNIT < ALIGNED:
        edge = tl.arange(0, 2 * ALIGNED) - ALIGNED
        at = tl.where(edge < 0, edge, body + edge)
        there = (at >= tl.where(chunk == 0, -head, 0)) & (at < tl.where(chunk == 0, columns - head, 0))
        apart = tl.load(x + at, mask=there, other=0).to(tl.float32)
        count += tl.where(chunk == 0, columns - body, 0)
        total += tl.sum(apart, 0)
    mean = total / tl.maximum(count, 1)
    squares = tl.sum(square_about(low, mean, left, body), 0) + tl.sum(
        square_about(high, mean, right, body), 0
    )
    if UNIT < ALIGNED:
        centred = tl.where(there, apart - mean, 0)
        squares += tl.sum(centred * centred, 0)
    if LANES > 1:
        tl.atomic_xchg(words + row * chunks + chunk, packed(mean, squares), sem="relaxed")
        mean, squares = moments(words + row * chunks, chunks, body, columns - body, LOW + HIGH, LANES)
    scale = tl.rsqrt(squares / columns + eps)
    write(low, mean, scale, weight, y, left, body)
    write(high, mean, scale, weight, y, right, body)
    if UNIT < ALIGNED:
        factor = tl.load(weight + at, mask=there, other=0).to(tl.float32)
        tl.store(y + at, ((apart - mean) * scale * factor).to(y.dtype.element_ty), mask=there)


@triton.jit
def row_parts(x, words, parts, units, UNIT: tl.constexpr, CHUNK: tl.constexpr):
    """Mean and squares of every parts-th chunk of one row: all programs together move along the row."""
    columns = units * UNIT
    row, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    count = tl.full([], 0, tl.float32)
    mean = tl.full([], 0, tl.float32)
    squares = tl.full([], 0, tl.float32)
    for start in range(part * CHUNK, columns, parts * CHUNK):
        column = start + tl.arange(0, CHUNK)
        value = read(x + row * columns, column, columns)
        more = tl.minimum(columns - start, CHUNK).to(tl.float32)
        own = tl.sum(value, 0) / more
        share = more / (count + more)
        squares += tl.sum(square_about(value, own, column, columns), 0)
        squares += (own - mean) * (own - mean) * count * share
        mean += (own - mean) * share
        count += more
    tl.store(words + row * parts + part, packed(mean, squares))


@triton.jit
def row_results(
    x, weight, y, words, heads, parts, chunks, units, eps, UNIT: tl.constexpr, HALF: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """A chunk of 2 * HALF columns of one row, the last one first: it may still be in the cache."""
    columns = units * UNIT
    task = tl.num_programs(0) - 1 - tl.program_id(0)
    row, chunk = (task // chunks).to(tl.int64), task % chunks
    left = chunk * 2 * HALF + tl.arange(0, HALF)
    right = left + HALF
    x += row * columns
    y += row * columns
    weight += row % heads * columns
    low, high = read(x, left, columns), read(x, right, columns)
    mean, squares = moments(words + row * parts, parts, columns, 0, 2 * HALF, LANES)
    scale = tl.rsqrt(squares / columns + eps)
    write(low, mean, scale, weight, y, left, columns)
    write(high, mean, scale, weight, y, right, columns)


def launch(elements: int, registers: int) -> dict[str, int]:
    """Options of a program that holds so many elements."""
    warps = min(MOST_WARPS, triton.next_power_of_2(triton.cdiv(elements, TILE)))
    return {
        "num_warps": warps,
        "maxnreg": min(registers * max(1, TILE // 1024), REGISTER_FILE // (32 * warps), 255),
    }


def narrow(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int) -> None:
    """Programs go from tile to tile in strides of a multiple of the heads, where there are enough of them."""
    (rows, columns), heads = x.shape, weight.shape[0]
    width = triton.next_power_of_2(columns)
    tile = min(MOST_ROWS, max(1, TILE // width))
    tiles, programs, turn = triton.cdiv(rows, tile), RESIDENT * processors(), heads // gcd(heads, tile)
    if turn <= programs:
        programs -= programs % turn
    same = turn <= programs or tiles <= programs
    grid = (min(tiles, programs),)
    narrow_rows[grid](
        x, weight, y, rows, heads, columns // unit, eps, unit, tile, width, same, columns == width, STAGES,
        **launch(width, NARROW_REGISTERS if unit * x.element_size() == VECTOR else MORE_REGISTERS),
    )  # fmt: skip


def once(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int, chunks: int) -> None:
    """In one launch; all chunks of a row must be able to run at the same time."""
    (rows, columns), heads = x.shape, weight.shape[0]
    words = y if chunks == 1 else torch.zeros(rows * chunks, dtype=torch.int64, device=x.device)
    chunk = columns if chunks == 1 else CHUNK
    low = triton.next_power_of_2(chunk) // 2
    high = triton.next_power_of_2(chunk - low)
    aligned, lanes = VECTOR // x.element_size(), triton.next_power_of_2(chunks)
    row_chunks[(rows * chunks,)](
        x, weight, y, words, heads, chunks, columns // unit, eps, unit, aligned, low, high, lanes,
        **launch(low + high, REGISTERS if unit == aligned else MORE_REGISTERS),
    )  # fmt: skip


def twice(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int) -> None:
    """In two launches, x read by both."""
    (rows, columns), heads = x.shape, weight.shape[0]
    chunks = triton.cdiv(columns, CHUNK)
    parts = min(chunks, MOST_PARTS)
    words = torch.empty(rows * parts, dtype=torch.int64, device=x.device)
    options, lanes = launch(CHUNK, MORE_REGISTERS), triton.next_power_of_2(parts)
    row_parts[(rows * parts,)](x, words, parts, columns // unit, unit, CHUNK, **options)
    row_results[(rows * chunks,)](
        x, weight, y, words, heads, parts, chunks, columns // unit, eps, unit, CHUNK // 2, lanes, **options
    )


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    """x and y batch x heads x size, weight heads x size, all contiguous."""
    columns = x.shape[2]
    x, y = x.view(-1, columns), y.view(-1, columns)
    unit = gcd(columns, VECTOR // x.element_size())
    if columns <= TILE:
        narrow(x, weight, y, eps, unit)
    elif columns <= WIDEST:
        once(x, weight, y, eps, unit, 1)
    elif x.device.type != "cpu" and triton.cdiv(columns, CHUNK) <= processors():
        once(x, weight, y, eps, unit, triton.cdiv(columns, CHUNK))
    else:  # on a CPU programs are interpreted one after another, and none can wait for a later one
        twice(x, weight, y, eps, unit)
