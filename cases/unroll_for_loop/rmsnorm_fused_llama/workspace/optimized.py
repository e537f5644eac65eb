"""y = x / sqrt(mean(x^2) + eps) * weight of each token: x read from memory once, for tokens of any width.

- Narrow rows, at most 1024 columns: a program holds as many whole rows as four warps can, 512 elements each.
- Rows up to WIDEST columns: a row a program, in registers between its sum of squares and its result.
- Aligned rows of 4096 to 16384 columns: a row a program, read twice, the second time from the L1 cache; so no thread
  holds much.
- Wider rows: a chunk of each. A program publishes its chunk's sum and waits until those of all chunks of its row are
  there. Programs start in the order of their numbers and there are no more chunks in a row than multiprocessors, so
  those that are waited for always get to run. A program has the same chunk of several rows, and reads one while sums
  of the row before arrive; rows that start anywhere have a program for each chunk.
- Rows with more chunks than multiprocessors: one launch for the sums, a second for the result, which walks
  backwards so that what was read last is still in the L2 cache.

Reads of x pass by the L1 cache, so that the weight stays in it. Where registers are short, elements wait for their sum
in the 16 bits that they came in.
"""

from __future__ import annotations

from functools import cache
from math import gcd

import torch
import triton
import triton.language as tl
from knobs import knob

TILE = knob("LLAMA_TILE")
"""Elements a warp holds. 0: 512 in narrow rows, 1024 in others, or 2048 where LOW and HIGH differ and in rows over
16384 columns, so that these hold 128 KiB of a multiprocessor's registers."""

WIDEST = knob("LLAMA_WIDEST") or 65536
CHUNK = knob("LLAMA_CHUNK") or 16384
SPAN = knob("LLAMA_SPAN")
STAGES = knob("LLAMA_STAGES")
RESIDENT = knob("LLAMA_RESIDENT")
NARROW_WARPS = knob("LLAMA_NARROW_WARPS") or 4
OVERLAP = knob("LLAMA_OVERLAP")
WALK, WALK_WARPS = knob("LLAMA_WALK"), knob("LLAMA_WALK_WARPS")

REGISTERS = knob("LLAMA_REGISTERS")
"""Of a thread at the most. 0: 48 where it holds 32 elements (40 warps on a multiprocessor), 64 where it holds 64, and
80 and more where elements are loaded one by one or those of two rows are held."""

STORES = tl.constexpr(".cs" if knob("LLAMA_STREAM") else "")

REGISTER_FILE = 65536
"""Registers of a multiprocessor."""

VECTOR = 16
"""Bytes of the widest load; rows whose length in bytes this divides are read so."""

MAX_WARPS = 32
WALKED = range(4096, min(knob("LLAMA_WALKED") or 16384, WIDEST) + 1)
"""Columns of rows that are read twice, where they are aligned."""

MAX_ROWS = 64
MAX_PARTS = 512
"""Of a row in two launches; each program of the second reads the sums of all."""

SIGN = tl.constexpr(-(2**31))
"""Marks a published sum, which has no sign of its own: memory starts as zeros."""


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
    x, weight, y, tile, rows, columns, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr, PAST: tl.constexpr
):
    """ROWS rows of at most WIDTH columns; where these are no more than a warp reads at once, each has one warp."""
    row = tile * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    real = column < columns
    there, at = real & (row < rows), row.to(tl.int64) * columns + column
    value = tl.load(x + at, mask=there, other=0, cache_modifier=PAST).to(tl.float32)
    factor = tl.load(weight + column, mask=real, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 1, keep_dims=True) / columns + eps)
    tl.store(y + at, (value * scale * factor).to(y.dtype.element_ty), mask=there, cache_modifier=STORES)


@triton.jit
def narrow_rows(
    x, weight, y, rows, units, eps, UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    STAGES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """A tile of rows of units * UNIT columns, or several; as a product it tells the compiler how rows are aligned."""
    columns = units * UNIT
    begin(OVERLAP)
    if STAGES == 0:
        narrow_tile(x, weight, y, tl.program_id(0), rows, columns, eps, ROWS, WIDTH, ".cg")
    else:  # loads with a cache hint are never pipelined
        for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
            narrow_tile(x, weight, y, tile, rows, columns, eps, ROWS, WIDTH, "")


@triton.jit
def read(x, column, columns):
    """Columns of the row that x points to; those that do not exist are zero."""
    return tl.load(x + column, mask=column < columns, other=0, cache_modifier=".cg")


@triton.jit
def square(value):
    value = value.to(tl.float32)
    return value * value


@triton.jit
def again(value, total):
    """`value` as float32; the compiler cannot tell that it had this before, and keeps 16 bits of each element."""
    nothing = (total.to(tl.int32, bitcast=True) >> 31).to(tl.int16)  # no sum of squares has a sign
    return (value.to(tl.int16, bitcast=True) ^ nothing).to(value.dtype, bitcast=True).to(tl.float32)


@triton.jit
def write(value, scale, weight, y, column, columns):
    """Columns of the row that y points to."""
    factor = tl.load(weight + column, mask=column < columns, other=0, eviction_policy="evict_last")
    result = value * scale * factor.to(tl.float32)
    tl.store(y + column, result.to(y.dtype.element_ty), mask=column < columns, cache_modifier=STORES)


@triton.jit
def walked_row(
    x, weight, y, eps, COLUMNS: tl.constexpr, STEP: tl.constexpr, OVERLAP: tl.constexpr
):  # fmt: skip
    """One row, read twice: the second time from the L1 cache, so that no thread holds much and many warps are there.

    COLUMNS is constant, so that a walk of few steps is no loop.
    """
    x += tl.program_id(0).to(tl.int64) * COLUMNS
    y += tl.program_id(0).to(tl.int64) * COLUMNS
    squares = tl.zeros([STEP], tl.float32)
    begin(OVERLAP)
    for start in range(0, COLUMNS, STEP):
        column = start + tl.arange(0, STEP)
        squares += square(tl.load(x + column, mask=column < COLUMNS, other=0, eviction_policy="evict_last"))
    scale = tl.rsqrt(tl.sum(squares, 0) / COLUMNS + eps)
    for start in range(0, COLUMNS, STEP):
        column = start + tl.arange(0, STEP)
        value = tl.load(x + column, mask=column < COLUMNS, other=0, eviction_policy="evict_first")
        write(value.to(tl.float32), scale, weight, y, column, COLUMNS)


@triton.jit
def marked(total):
    """A sum as it is published."""
    return total.to(tl.int32, bitcast=True) | SIGN


@triton.jit
def sum_of(sums, parts, LANES: tl.constexpr):
    """Of all parts of a row, once every one of them is published."""
    lane = tl.arange(0, LANES)
    found = tl.load(sums + lane, mask=lane < parts, other=SIGN, volatile=True)
    while tl.max(found, 0) >= 0:
        found = tl.load(sums + lane, mask=lane < parts, other=SIGN, volatile=True)
    return tl.sum((found ^ SIGN).to(tl.float32, bitcast=True), 0)


@triton.jit
def row_chunks(
    x, weight, y, sums, chunks, units, eps, UNIT: tl.constexpr, ALIGNED: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr, LANES: tl.constexpr, HOLD: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """A chunk of LOW + HIGH columns of one row, in registers while the other chunks' sums arrive, if there are any.

    `sums` starts as zeros. LOW is written before HIGH's weight is read, to need fewer registers. HOLD: bits in which
    elements wait. Rows that start anywhere (UNIT < ALIGNED) are walked from one multiple of ALIGNED elements to
    another, and the first chunk has the few columns before and after them besides.
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
    weight += head
    left = chunk * (LOW + HIGH) + tl.arange(0, LOW)
    right = chunk * (LOW + HIGH) + LOW + tl.arange(0, HIGH)
    begin(OVERLAP)
    low, high = read(x, left, body), read(x, right, body)
    if LOW <= 4 * HIGH:  # HIGH sums within threads, then one reduction across them
        total = tl.sum(tl.sum(tl.reshape(square(low), [LOW // HIGH, HIGH]), 0) + square(high), 0)
    else:
        total = tl.sum(square(low), 0) + tl.sum(square(high), 0)
    if UNIT < ALIGNED:
        edge = tl.arange(0, 2 * ALIGNED) - ALIGNED
        at = tl.where(edge < 0, edge, body + edge)
        there = (at >= tl.where(chunk == 0, -head, 0)) & (at < tl.where(chunk == 0, columns - head, 0))
        apart = tl.load(x + at, mask=there, other=0).to(tl.float32)
        total += tl.sum(apart * apart, 0)
    if LANES > 1:
        tl.atomic_xchg(sums + row * chunks + chunk, marked(total), sem="relaxed")
        total = sum_of(sums + row * chunks, chunks, LANES)
    scale = tl.rsqrt(total / columns + eps)
    write(again(low, total) if HOLD == 16 else low.to(tl.float32), scale, weight, y, left, body)
    write(again(high, total) if HOLD == 16 else high.to(tl.float32), scale, weight, y, right, body)
    if UNIT < ALIGNED:
        factor = tl.load(weight + at, mask=there, other=0).to(tl.float32)
        tl.store(y + at, (apart * scale * factor).to(y.dtype.element_ty), mask=there)


@triton.jit
def fetch(x, sums, left, right, columns):
    """Both halves of a chunk, whose sum of squares is published."""
    low, high = read(x, left, columns), read(x, right, columns)
    tl.atomic_xchg(sums, marked(tl.sum(square(low) + square(high), 0)), sem="relaxed")
    return low, high


@triton.jit
def finish(low, high, sums, weight, y, left, right, columns, chunks, eps, LANES: tl.constexpr):
    """Write both halves of a chunk, once the sums of its row's other chunks are there too."""
    scale = tl.rsqrt(sum_of(sums, chunks, LANES) / columns + eps)
    write(low.to(tl.float32), scale, weight, y, left, columns)
    write(high.to(tl.float32), scale, weight, y, right, columns)


@triton.jit
def chunk_of_rows(
    x, weight, y, sums, rows, chunks, span, units, eps, UNIT: tl.constexpr, HALF: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """The same chunk of `span` rows; each is written when the next one's sum is published.

    So the other programs' sums have as long as a load takes to arrive. `sums` starts as zeros.
    """
    columns = units * UNIT
    row, chunk = tl.program_id(0) // chunks * span, tl.program_id(0) % chunks
    last = tl.minimum(row + span, rows) - 1
    left = chunk * 2 * HALF + tl.arange(0, HALF)
    right = left + HALF
    x += row.to(tl.int64) * columns
    y += row.to(tl.int64) * columns
    sums += row * chunks
    low, high = fetch(x, sums + chunk, left, right, columns)
    for _ in range(row, last):
        x += columns
        next_low, next_high = fetch(x, sums + chunks + chunk, left, right, columns)
        finish(low, high, sums, weight, y, left, right, columns, chunks, eps, LANES)
        low, high = next_low, next_high
        y += columns
        sums += chunks
    finish(low, high, sums, weight, y, left, right, columns, chunks, eps, LANES)


@triton.jit
def row_parts(x, sums, parts, units, UNIT: tl.constexpr, CHUNK: tl.constexpr):
    """Sum of squares of every parts-th chunk of one row: all programs together move along the row."""
    columns = units * UNIT
    row, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    squares = tl.zeros([CHUNK], tl.float32)
    for start in range(part * CHUNK, columns, parts * CHUNK):
        squares += square(read(x + row * columns, start + tl.arange(0, CHUNK), columns))
    tl.store(sums + row * parts + part, marked(tl.sum(squares, 0)))


@triton.jit
def row_results(
    x, weight, y, sums, parts, chunks, units, eps, UNIT: tl.constexpr, HALF: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """A chunk of 2 * HALF columns of one row, the last one first: it may still be in the cache."""
    columns = units * UNIT
    task = tl.num_programs(0) - 1 - tl.program_id(0)
    row, chunk = (task // chunks).to(tl.int64), task % chunks
    left = chunk * 2 * HALF + tl.arange(0, HALF)
    right = left + HALF
    x += row * columns
    y += row * columns
    low, high = read(x, left, columns).to(tl.float32), read(x, right, columns).to(tl.float32)
    scale = tl.rsqrt(sum_of(sums + row * parts, parts, LANES) / columns + eps)
    write(low, scale, weight, y, left, columns)
    write(high, scale, weight, y, right, columns)


def launch(elements: int, each: int, registers: int) -> dict[str, int]:
    """Options of a program that holds so many elements, `each` a warp."""
    warps = min(MAX_WARPS, triton.next_power_of_2(triton.cdiv(elements, each)))
    return {"num_warps": warps, "maxnreg": min(registers, REGISTER_FILE // (32 * warps))}


def overlapping(x: torch.Tensor, chunks: int = 1) -> dict[str, bool]:
    """Option and constant of a launch that is prepared while the kernel before it ends; zeros are set by no kernel."""
    on = OVERLAP and chunks == 1 and x.device.type != "cpu"
    return {"OVERLAP": True, "launch_pdl": True} if on else {"OVERLAP": False}


def narrow(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int) -> None:
    rows, columns = x.shape
    width, each = triton.next_power_of_2(columns), TILE or 512
    tile = min(MAX_ROWS, max(1, NARROW_WARPS * each // width))
    tiles = triton.cdiv(rows, tile)
    registers = (48 if columns <= 256 and not RESIDENT else 64) * max(1, each // 1024)
    registers = REGISTERS or (registers if unit * x.element_size() == VECTOR else 96)
    narrow_rows[(min(tiles, RESIDENT * processors()) if RESIDENT else tiles,)](
        x, weight, y, rows, columns // unit, eps, unit, tile, width, STAGES if RESIDENT else 0,
        **overlapping(x), **launch(NARROW_WARPS * each, each, registers),
    )  # fmt: skip


def walked(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float) -> None:
    rows, columns = x.shape
    width = triton.next_power_of_2(columns)
    warps = WALK_WARPS or min(MAX_WARPS, width * x.element_size() // 1024)
    walked_row[(rows,)](x, weight, y, eps, columns, WALK or width // 2, **overlapping(x), num_warps=warps)


def once(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int, chunks: int) -> None:
    """In one launch; all chunks of a row must be able to run at the same time."""
    rows, columns = x.shape
    sums = y if chunks == 1 else torch.zeros(rows * chunks, dtype=torch.int32, device=x.device)
    chunk, aligned = columns if chunks == 1 else CHUNK, VECTOR // x.element_size()
    low = triton.next_power_of_2(chunk) // 2
    high = triton.next_power_of_2(chunk - low)
    each = TILE or (1024 if low == high <= 8192 or chunks > 1 else 2048)
    registers = REGISTERS or (64 if each > 1024 else 48 if unit == aligned else 80)
    hold = 16 if each > 1024 or chunks > 1 or registers < 48 else 32
    row_chunks[(rows * chunks,)](
        x, weight, y, sums, chunks, columns // unit, eps, unit, aligned, low, high, triton.next_power_of_2(chunks),
        hold, **overlapping(x, chunks), **launch(low + high, each, registers),
    )  # fmt: skip


def spanned(
    x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int, chunks: int
) -> None:
    """In one launch; all chunks of a row must be able to run at the same time."""
    rows, columns = x.shape
    options = launch(CHUNK, TILE or 2048, REGISTERS or 128)
    resident = REGISTER_FILE // (32 * options["num_warps"] * options["maxnreg"]) * processors()
    span = min(SPAN, triton.cdiv(rows, max(1, resident // chunks)))
    sums = torch.zeros(rows * chunks, dtype=torch.int32, device=x.device)
    chunk_of_rows[(triton.cdiv(rows, span) * chunks,)](
        x, weight, y, sums, rows, chunks, span, columns // unit, eps, unit, CHUNK // 2,
        triton.next_power_of_2(chunks), **options,
    )  # fmt: skip


def twice(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int) -> None:
    """In two launches, x read by both."""
    rows, columns = x.shape
    chunks = triton.cdiv(columns, CHUNK)
    parts = min(chunks, MAX_PARTS)
    sums = torch.empty(rows * parts, dtype=torch.int32, device=x.device)
    options, lanes = launch(CHUNK, 1024, 80), triton.next_power_of_2(parts)
    row_parts[(rows * parts,)](x, sums, parts, columns // unit, unit, CHUNK, **options)
    row_results[(rows * chunks,)](
        x, weight, y, sums, parts, chunks, columns // unit, eps, unit, CHUNK // 2, lanes, **options
    )


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    """x and y rows x columns, weight columns, all contiguous."""
    columns = x.shape[1]
    unit, chunks = gcd(columns, VECTOR // x.element_size()), triton.cdiv(columns, CHUNK)
    if columns <= 1024:
        narrow(x, weight, y, eps, unit)
    elif columns in WALKED and unit * x.element_size() == VECTOR:
        walked(x, weight, y, eps)
    elif columns <= WIDEST:
        once(x, weight, y, eps, unit, 1)
    elif x.device.type == "cpu" or chunks > processors():
        twice(x, weight, y, eps, unit)  # on a CPU programs are interpreted one after another: none can wait
    elif SPAN and unit * x.element_size() == VECTOR:
        spanned(x, weight, y, eps, unit, chunks)
    else:
        once(x, weight, y, eps, unit, chunks)
