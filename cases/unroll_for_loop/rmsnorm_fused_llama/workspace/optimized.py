"""y = x / sqrt(mean(x^2) + eps) * weight of each token: x read once, y written once, for tokens of any width.

- Narrow rows, at most TILE columns: tiles of whole rows in programs of one warp, which stay and keep the weight.
- Rows up to WIDEST columns: a row a program, in registers between its sum of squares and its result.
- Wider rows: the same for each chunk of CHUNK columns. A program publishes its chunk's sum and waits until those of
  all chunks of its row are there. Programs start in the order of their numbers and there are no more
  chunks in a row than multiprocessors, so those that are waited for always get to run.
- Rows with more chunks than multiprocessors: one launch for the sums, a second for the result, which walks
  backwards so that what was read last is still in the L2 cache.

Reads of x pass by the L1 cache, so that the weight stays in it.
"""

from __future__ import annotations

from functools import cache
from math import gcd

import torch
import triton
import triton.language as tl
from knobs import knob

TILE = knob("LLAMA_TILE") or 1024
"""Elements a warp holds: 32 a thread, four 16-byte loads."""

WIDEST = knob("LLAMA_WIDEST") or 16384
CHUNK = knob("LLAMA_CHUNK") or 8192
STAGES = knob("LLAMA_STAGES")
RESIDENT = knob("LLAMA_RESIDENT") or 32

REGISTERS, MORE_REGISTERS = 48, 80
"""Of a thread at the most: for 40 warps on a multiprocessor, and where elements are loaded one by one."""

REGISTER_FILE = 65536
"""Registers of a multiprocessor."""

VECTOR = 16
"""Bytes of the widest load; rows whose length in bytes this divides are read so."""

MOST_WARPS = 32
MOST_ROWS = 64
MOST_PARTS = 512
"""Of a row in two launches; each program of the second reads the sums of all."""

SIGN = tl.constexpr(-(2**31))
"""Marks a published sum, which has no sign of its own: memory starts as zeros."""


@cache
def processors() -> int:
    """Streaming multiprocessors of the GPU; an H200's where there is none."""
    return torch.cuda.get_device_properties().multi_processor_count if torch.cuda.is_available() else 132


@triton.jit
def narrow_rows(
    x, weight, y, rows, units, eps, UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Tiles of ROWS rows of units * UNIT <= WIDTH columns; as a product it tells the compiler how rows are aligned."""
    columns = units * UNIT
    column = tl.arange(0, WIDTH)[None, :]
    real = column < columns
    factor = tl.load(weight + column, mask=real, other=0).to(tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        first, there = row.to(tl.int64) * columns, real & (row < rows)
        value = tl.load(x + first + column, mask=there, other=0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 1, keep_dims=True) / columns + eps)
        tl.store(y + first + column, (value * scale * factor).to(y.dtype.element_ty), mask=there)


@triton.jit
def read(x, column, columns):
    """Columns of the row that x points to, as float32; those that do not exist are zero."""
    return tl.load(x + column, mask=column < columns, other=0, cache_modifier=".cg").to(tl.float32)


@triton.jit
def write(value, scale, weight, y, column, columns):
    """Columns of the row that y points to."""
    factor = tl.load(weight + column, mask=column < columns, other=0, eviction_policy="evict_last")
    result = value * scale * factor.to(tl.float32)
    tl.store(y + column, result.to(y.dtype.element_ty), mask=column < columns)


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
    HIGH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """A chunk of LOW + HIGH columns of one row, in registers while the other chunks' sums arrive, if there are any.

    `sums` starts as zeros. LOW is written before HIGH's weight is read, to need fewer registers. Rows that start
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
    weight += head
    left = chunk * (LOW + HIGH) + tl.arange(0, LOW)
    right = chunk * (LOW + HIGH) + LOW + tl.arange(0, HIGH)
    low, high = read(x, left, body), read(x, right, body)
    total = (
        tl.sum(low * low + high * high, 0) if LOW == HIGH else tl.sum(low * low, 0) + tl.sum(high * high, 0)
    )
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
    write(low, scale, weight, y, left, body)
    write(high, scale, weight, y, right, body)
    if UNIT < ALIGNED:
        factor = tl.load(weight + at, mask=there, other=0).to(tl.float32)
        tl.store(y + at, (apart * scale * factor).to(y.dtype.element_ty), mask=there)


@triton.jit
def row_parts(x, sums, parts, units, UNIT: tl.constexpr, CHUNK: tl.constexpr):
    """Sum of squares of every parts-th chunk of one row: all programs together move along the row."""
    columns = units * UNIT
    row, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    squares = tl.zeros([CHUNK], tl.float32)
    for start in range(part * CHUNK, columns, parts * CHUNK):
        value = read(x + row * columns, start + tl.arange(0, CHUNK), columns)
        squares += value * value
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
    low, high = read(x, left, columns), read(x, right, columns)
    scale = tl.rsqrt(sum_of(sums + row * parts, parts, LANES) / columns + eps)
    write(low, scale, weight, y, left, columns)
    write(high, scale, weight, y, right, columns)


def launch(elements: int, registers: int) -> dict[str, int]:
    """Options of a program that holds so many elements."""
    warps = min(MOST_WARPS, triton.next_power_of_2(triton.cdiv(elements, TILE)))
    return {
        "num_warps": warps,
        "maxnreg": min(registers * max(1, TILE // 1024), REGISTER_FILE // (32 * warps), 255),
    }


def narrow(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int) -> None:
    rows, columns = x.shape
    width = triton.next_power_of_2(columns)
    tile = min(MOST_ROWS, max(1, TILE // width))
    grid = (min(triton.cdiv(rows, tile), RESIDENT * processors()),)
    narrow_rows[grid](
        x, weight, y, rows, columns // unit, eps, unit, tile, width, STAGES, **launch(width, MORE_REGISTERS)
    )  # fmt: skip


def once(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int, chunks: int) -> None:
    """In one launch; all chunks of a row must be able to run at the same time."""
    rows, columns = x.shape
    sums = y if chunks == 1 else torch.zeros(rows * chunks, dtype=torch.int32, device=x.device)
    chunk = columns if chunks == 1 else CHUNK
    low = triton.next_power_of_2(chunk) // 2
    high = triton.next_power_of_2(chunk - low)
    aligned, lanes = VECTOR // x.element_size(), triton.next_power_of_2(chunks)
    row_chunks[(rows * chunks,)](
        x, weight, y, sums, chunks, columns // unit, eps, unit, aligned, low, high, lanes,
        **launch(low + high, REGISTERS if unit == aligned else MORE_REGISTERS),
    )  # fmt: skip


def twice(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float, unit: int) -> None:
    """In two launches, x read by both."""
    rows, columns = x.shape
    chunks = triton.cdiv(columns, CHUNK)
    parts = min(chunks, MOST_PARTS)
    sums = torch.empty(rows * parts, dtype=torch.int32, device=x.device)
    row_parts[(rows * parts,)](x, sums, parts, columns // unit, unit, CHUNK, **launch(CHUNK, MORE_REGISTERS))
    lanes = triton.next_power_of_2(parts)
    row_results[(rows * chunks,)](
        x,
        weight,
        y,
        sums,
        parts,
        chunks,
        columns // unit,
        eps,
        unit,
        CHUNK // 2,
        lanes,
        **launch(CHUNK, MORE_REGISTERS),
    )


def run(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    """x and y rows x columns, weight columns, all contiguous."""
    columns = x.shape[1]
    unit = gcd(columns, VECTOR // x.element_size())
    if columns <= TILE:
        narrow(x, weight, y, eps, unit)
    elif columns <= WIDEST:
        once(x, weight, y, eps, unit, 1)
    elif x.device.type != "cpu" and triton.cdiv(columns, CHUNK) <= processors():
        once(x, weight, y, eps, unit, triton.cdiv(columns, CHUNK))
    else:  # on a CPU programs are interpreted one after another, and none can wait for a later one
        twice(x, weight, y, eps, unit)
