"""y = (x - mean) / sqrt(variance + eps) * weight[head]: x read once, y written once, for heads of any size.

A row is one head of one batch entry; rows lie one after another, so that a row's head is its number modulo the heads.

- Narrow rows, at most 1024 elements: a program holds as many whole rows as four warps can, 512 elements each.
- Rows up to WIDEST elements: a row a program, in registers from its mean to its result.
- Wider rows: the same for each chunk of 4096 elements, 8192 in the widest. A program publishes its chunk's mean and
  squares about it in a 64-bit word and waits until those of all chunks of its row are there. Programs start in the
  order of their numbers and there are no more chunks in a row than multiprocessors, so those that are waited for always
  get to run. A program has the same chunk of several rows, and reads one while words of the row before arrive; rows
  that start anywhere have a program for each chunk.
- Rows with more chunks than multiprocessors: one launch for the words, a second for the result, which walks
  backwards so that what was read last is still in the L2 cache.

Moments are merged as Chan, Golub and LeVeque do: squares about each part's own mean, so that nothing cancels. Reads
of x pass by the L1 cache, so that the weights stay in it. Where registers are short, elements wait in the 16 bits that
they came in.
"""

from __future__ import annotations

from functools import cache
from math import gcd

import torch
import triton
import triton.language as tl
from knobs import knob

TILE = knob("LN_TILE")
"""Elements a warp holds. 0: 512 in narrow rows, 1024 in others, or 2048 where LOW and HIGH differ and in rows that 32
such warps could not hold."""

WIDEST = knob("LN_WIDEST") or 16384
CHUNK = knob("LN_CHUNK")
SPAN = knob("LN_SPAN")
STAGES = knob("LN_STAGES")
RESIDENT = knob("LN_RESIDENT")
NARROW_WARPS = knob("LN_NARROW_WARPS") or 4
OVERLAP = knob("LN_OVERLAP")

REGISTERS = knob("LN_REGISTERS")
"""Of a thread at the most. 0: 64 (32 warps on a multiprocessor), 80 where 64 elements are held or 32 of each of two
rows, 96 where elements are loaded one by one."""

STORES = tl.constexpr(".cs" if knob("LN_STREAM") else "")

REGISTER_FILE = 65536
"""Registers of a multiprocessor."""

VECTOR = 16
"""Bytes of the widest load; rows whose length in bytes this divides are read so."""

MAX_WARPS = 32
MAX_ROWS = 64
MAX_PARTS = 512
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
def begin(OVERLAP: tl.constexpr):
    """Let the next launch be prepared while this one ends, and wait for the one before to have ended."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def narrow_tile(
    x, weight, y, tile, rows, heads, columns, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr, FULL: tl.constexpr,
    PAST: tl.constexpr,
):  # fmt: skip
    """ROWS rows of at most WIDTH columns; where these are no more than a warp reads at once, each has one warp."""
    row = tile * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    real = column < columns
    there, at = real & (row < rows), row.to(tl.int64) * columns + column
    value = tl.load(x + at, mask=there, other=0, cache_modifier=PAST).to(tl.float32)
    centred = value - tl.sum(value, 1, keep_dims=True) / columns
    squares = centred * centred if FULL else tl.where(real, centred * centred, 0)
    scale = tl.rsqrt(tl.sum(squares, 1, keep_dims=True) / columns + eps)
    factor = tl.load(weight + row % heads * columns + column, mask=there, other=0)
    result = centred * scale * factor.to(tl.float32)
    tl.store(y + at, result.to(y.dtype.element_ty), mask=there, cache_modifier=STORES)


@triton.jit
def narrow_rows(
    x, weight, y, rows, heads, units, eps, UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    FULL: tl.constexpr, STAGES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """A tile of rows of units * UNIT columns, or several; as a product it tells the compiler how rows are aligned.

    FULL: columns are WIDTH.
    """
    columns = units * UNIT
    begin(OVERLAP)
    if STAGES == 0:
        narrow_tile(x, weight, y, tl.program_id(0), rows, heads, columns, eps, ROWS, WIDTH, FULL, ".cg")
    else:  # loads with a cache hint are never pipelined
        for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
            narrow_tile(x, weight, y, tile, rows, heads, columns, eps, ROWS, WIDTH, FULL, "")


@triton.jit
def read(x, column, columns):
    """Columns of the row that x points to; those that do not exist are zero."""
    return tl.load(x + column, mask=column < columns, other=0, cache_modifier=".cg")


@triton.jit
def again(value, total, HOLD: tl.constexpr):
    """`value` as float32; with HOLD 16 the compiler cannot tell that it had this before, and keeps 16 bits of it."""
    if HOLD == 16:
        nothing = ((total * total).to(tl.int32, bitcast=True) >> 31).to(tl.int16)  # no square has a sign
        value = (value.to(tl.int16, bitcast=True) ^ nothing).to(value.dtype, bitcast=True)
    return value.to(tl.float32)


@triton.jit
def sum_of_both(low, high, LOW: tl.constexpr, HIGH: tl.constexpr):
    """Of LOW and of HIGH numbers: HIGH sums within threads, then one reduction across them."""
    if LOW <= 4 * HIGH:
        total = tl.sum(tl.sum(tl.reshape(low, [LOW // HIGH, HIGH]), 0) + high, 0)
    else:
        total = tl.sum(low, 0) + tl.sum(high, 0)
    return total


@triton.jit
def write(value, mean, scale, weight, y, column, columns):
    """Columns of the row that y points to."""
    factor = tl.load(weight + column, mask=column < columns, other=0, eviction_policy="evict_last")
    result = (value - mean) * scale * factor.to(tl.float32)
    tl.store(y + column, result.to(y.dtype.element_ty), mask=column < columns, cache_modifier=STORES)


@triton.jit
def square_about(value, mean, column, columns, FULL: tl.constexpr):
    """(value - mean)^2 of the columns that exist; FULL: they all do."""
    centred = value - mean if FULL else tl.where(column < columns, value - mean, 0)
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
    HIGH: tl.constexpr, LANES: tl.constexpr, FULL: tl.constexpr, HOLD: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """A chunk of LOW + HIGH columns of one row, in registers while the other chunks' words arrive, if there are any.

    `words` starts as zeros. LOW is written before HIGH's weight is read, to need fewer registers. FULL: no chunk has
    fewer columns than it has room for. HOLD: bits in which elements wait. Rows that start anywhere (UNIT < ALIGNED) are
    walked from one multiple of ALIGNED elements to another, and the first chunk has the few columns before and after
    them besides.
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
    begin(OVERLAP)
    low, high = read(x, left, body), read(x, right, body)
    count = tl.minimum(tl.maximum(body - chunk * (LOW + HIGH), 0), LOW + HIGH)
    total = sum_of_both(low.to(tl.float32), high.to(tl.float32), LOW, HIGH)
    if UNIT < ALIGNED:
        edge = tl.arange(0, 2 * ALIGNED) - ALIGNED
        at = tl.where(edge < 0, edge, body + edge)
        there = (at >= tl.where(chunk == 0, -head, 0)) & (at < tl.where(chunk == 0, columns - head, 0))
        apart = tl.load(x + at, mask=there, other=0).to(tl.float32)
        count += tl.where(chunk == 0, columns - body, 0)
        total += tl.sum(apart, 0)
    mean = total / tl.maximum(count, 1)
    squares = sum_of_both(
        square_about(again(low, total, HOLD), mean, left, body, FULL),
        square_about(again(high, total, HOLD), mean, right, body, FULL), LOW, HIGH,
    )  # fmt: skip
    if UNIT < ALIGNED:
        centred = tl.where(there, apart - mean, 0)
        squares += tl.sum(centred * centred, 0)
    if LANES > 1:
        tl.atomic_xchg(words + row * chunks + chunk, packed(mean, squares), sem="relaxed")
        mean, squares = moments(words + row * chunks, chunks, body, columns - body, LOW + HIGH, LANES)
    scale = tl.rsqrt(squares / columns + eps)
    write(again(low, squares, HOLD), mean, scale, weight, y, left, body)
    write(again(high, squares, HOLD), mean, scale, weight, y, right, body)
    if UNIT < ALIGNED:
        factor = tl.load(weight + at, mask=there, other=0).to(tl.float32)
        tl.store(y + at, ((apart - mean) * scale * factor).to(y.dtype.element_ty), mask=there)


@triton.jit
def fetch(x, words, left, right, start, columns, HALF: tl.constexpr, FULL: tl.constexpr):
    """Both halves of a chunk, whose mean and squares about it are published."""
    low, high = read(x, left, columns), read(x, right, columns)
    total = sum_of_both(low.to(tl.float32), high.to(tl.float32), HALF, HALF)
    mean = total / tl.minimum(columns - start, 2 * HALF)
    squares = sum_of_both(
        square_about(again(low, total, 16), mean, left, columns, FULL),
        square_about(again(high, total, 16), mean, right, columns, FULL), HALF, HALF,
    )  # fmt: skip
    tl.atomic_xchg(words, packed(mean, squares), sem="relaxed")
    return low, high


@triton.jit
def finish(
    low, high, words, weight, y, left, right, columns, chunks, eps, HALF: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """Write both halves of a chunk, once the words of its row's other chunks are there too."""
    mean, squares = moments(words, chunks, columns, 0, 2 * HALF, LANES)
    scale = tl.rsqrt(squares / columns + eps)
    write(low.to(tl.float32), mean, scale, weight, y, left, columns)
    write(high.to(tl.float32), mean, scale, weight, y, right, columns)


@triton.jit
def chunk_of_rows(
    x, weight, y, words, rows, heads, chunks, span, units, eps, UNIT: tl.constexpr, HALF: tl.constexpr,
    LANES: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """The same chunk of `span` rows; each is written when the next one's word is published.

    So the other programs' words have as long as a load takes to arrive. `words` starts as zeros.
    """
    columns = units * UNIT
    row, chunk = tl.program_id(0) // chunks * span, tl.program_id(0) % chunks
    last, start = tl.minimum(row + span, rows) - 1, chunk * 2 * HALF
    left = start + tl.arange(0, HALF)
    right = left + HALF
    x += row.to(tl.int64) * columns
    y += row.to(tl.int64) * columns
    words += row * chunks
    low, high = fetch(x, words + chunk, left, right, start, columns, HALF, FULL)
    for at in range(row, last):
        x += columns
        next_low, next_high = fetch(x, words + chunks + chunk, left, right, start, columns, HALF, FULL)
        factors = weight + at % heads * columns
        finish(low, high, words, factors, y, left, right, columns, chunks, eps, HALF, LANES)
        low, high = next_low, next_high
        y += columns
        words += chunks
    factors = weight + last % heads * columns
    finish(low, high, words, factors, y, left, right, columns, chunks, eps, HALF, LANES)


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
        value = read(x + row * columns, column, columns).to(tl.float32)
        more = tl.minimum(columns - start, CHUNK).to(tl.float32)
        own = tl.sum(value, 0) / more
        share = more / (count + more)
        squares += tl.sum(square_about(value, own, column, columns, False), 0)
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
    low, high = read(x, left, columns).to(tl.float32), read(x, right, columns).to(tl.float32)
    mean, squares = moments(words + row * parts, parts, columns, 0, 2 * HALF, LANES)
    scale = tl.rsqrt(squares / columns + eps)
    write(low, mean, scale, weight, y, left, columns)
    write(high, mean, scale, weight, y, right, columns)


def launch(elements: int, each: int, registers: int) -> dict[str, int]:
    """Options of a program that holds so many elements, `each` a warp."""
    warps = min(MAX_WARPS, triton.next_power_of_2(triton.cdiv(elements, each)))
    return {"num_warps": warps, "maxnreg": min(registers, REGISTER_FILE // (32 * warps))}


def overlapping(x: torch.Tensor, chunks: int = 1) -> dict[str, bool]:
    """Option and constant of a launch that is prepared while the kernel before it ends; zeros are set by no kernel."""
    on = OVERLAP and chunks == 1 and x.device.type != "cpu"
    return {"OVERLAP": True, "launch_pdl": True} if on else {"OVERLAP": False}


def narrow(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int) -> None:
    (rows, columns), heads = x.shape, weight.shape[0]
    width, each = triton.next_power_of_2(columns), TILE or 512
    tile = min(MAX_ROWS, max(1, NARROW_WARPS * each // width))
    tiles, registers = triton.cdiv(rows, tile), (80 if RESIDENT else 64) * max(1, each // 1024)
    registers = REGISTERS or (registers if unit * x.element_size() == VECTOR else 128)
    narrow_rows[(min(tiles, RESIDENT * processors()) if RESIDENT else tiles,)](
        x, weight, y, rows, heads, columns // unit, eps, unit, tile, width, columns == width,
        STAGES if RESIDENT else 0, **overlapping(x), **launch(NARROW_WARPS * each, each, registers),
    )  # fmt: skip


def chunk_of(columns: int) -> int:
    """Columns of a chunk: few, where all chunks of a row can run at the same time even so."""
    return CHUNK or (4096 if columns <= 4096 * processors() else 8192)


def once(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int, chunk: int) -> None:
    """In one launch; all chunks of a row must be able to run at the same time."""
    (rows, columns), heads = x.shape, weight.shape[0]
    chunks, aligned = triton.cdiv(columns, chunk), VECTOR // x.element_size()
    words = y if chunks == 1 else torch.zeros(rows * chunks, dtype=torch.int64, device=x.device)
    low = triton.next_power_of_2(chunk) // 2
    high = triton.next_power_of_2(chunk - low)
    each = TILE or (1024 if low == high <= 512 * MAX_WARPS or chunks > 1 else 2048)
    registers = REGISTERS or (64 if each > 1024 or unit == aligned else 96)
    hold = 16 if each > 1024 or registers < 64 else 32
    row_chunks[(rows * chunks,)](
        x, weight, y, words, heads, chunks, columns // unit, eps, unit, aligned, low, high,
        triton.next_power_of_2(chunks), unit == aligned and columns % (low + high) == 0, hold,
        **overlapping(x, chunks), **launch(low + high, each, registers),
    )  # fmt: skip


def spanned(
    x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int, chunk: int
) -> None:
    """In one launch; all chunks of a row must be able to run at the same time."""
    (rows, columns), heads, chunks = x.shape, weight.shape[0], triton.cdiv(x.shape[1], chunk)
    options = launch(chunk, TILE or 1024, REGISTERS or 80)
    resident = REGISTER_FILE // (32 * options["num_warps"] * options["maxnreg"]) * processors()
    span = min(SPAN, triton.cdiv(rows, max(1, resident // chunks)))
    words = torch.zeros(rows * chunks, dtype=torch.int64, device=x.device)
    chunk_of_rows[(triton.cdiv(rows, span) * chunks,)](
        x, weight, y, words, rows, heads, chunks, span, columns // unit, eps, unit, chunk // 2,
        triton.next_power_of_2(chunks), columns % chunk == 0, **options,
    )  # fmt: skip


def twice(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int, chunk: int) -> None:
    """In two launches, x read by both."""
    (rows, columns), heads = x.shape, weight.shape[0]
    chunks = triton.cdiv(columns, chunk)
    parts = min(chunks, MAX_PARTS)
    words = torch.empty(rows * parts, dtype=torch.int64, device=x.device)
    options, lanes = launch(chunk, 1024, 96), triton.next_power_of_2(parts)
    row_parts[(rows * parts,)](x, words, parts, columns // unit, unit, chunk, **options)
    row_results[(rows * chunks,)](
        x, weight, y, words, heads, parts, chunks, columns // unit, eps, unit, chunk // 2, lanes, **options
    )


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    """x and y batch x heads x size, weight heads x size, all contiguous."""
    columns = x.shape[2]
    x, y = x.view(-1, columns), y.view(-1, columns)
    unit, chunk = gcd(columns, VECTOR // x.element_size()), chunk_of(columns)
    if columns <= 1024:
        narrow(x, weight, y, eps, unit)
    elif columns <= WIDEST:
        once(x, weight, y, eps, unit, columns)
    elif x.device.type == "cpu" or columns > chunk * processors():
        # on a CPU programs are interpreted one after another: none can wait
        twice(x, weight, y, eps, unit, chunk)
    elif SPAN and unit * x.element_size() == VECTOR:
        spanned(x, weight, y, eps, unit, chunk)
    else:
        once(x, weight, y, eps, unit, chunk)
