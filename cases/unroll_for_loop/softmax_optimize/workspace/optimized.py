"""y = softmax(x) along rows of float32: x read once, y written once, for rows of any width.

- Narrow rows, at most TILE columns: tiles of whole rows in programs of one warp, which go from tile to tile.
- Rows up to WIDEST columns: a row a program, in registers from its maximum to its result.
- Wider rows: each program holds one chunk. It publishes the chunk's maximum and sum in one 64-bit word, waits until the
  words of all chunks of its row are there, and writes its part. Programs start in the order of their numbers and
  there are no more chunks in a row than multiprocessors, so those that are waited for always get to run.
- Rows with more chunks than multiprocessors: one launch for the words, a second for the result, which walks
  backwards so that what was read last is still in the L2 cache.
"""

from __future__ import annotations

from functools import cache
from math import gcd

import torch
import triton
import triton.language as tl
from knobs import knob

TILE = knob("SOFTMAX_TILE") or 1024
"""Elements a warp holds; 32 a thread are eight 16-byte loads under way, in few enough registers for 32 warps."""

WIDEST = knob("SOFTMAX_WIDEST") or 16384
CHUNK = knob("SOFTMAX_CHUNK") or 8192
RESIDENT = knob("SOFTMAX_RESIDENT") or 32

REGISTERS, NARROW_REGISTERS = 80, 96
"""Of a thread at the most. Large problems take 64 and less: 32 warps of them fill a multiprocessor."""

REGISTER_FILE = 65536
"""Registers of a multiprocessor."""

UNIT = 4
"""float32 elements in 16 bytes, the widest load; rows whose length this divides are read so."""

MOST_WARPS = 32
MOST_ROWS = 64
MOST_WORDS = 512
"""Parts of a row in two launches; each program of the second reads them all."""

LOWEST = tl.constexpr(-3e38)
"""A maximum to start from: finite, so that -inf meets no -inf, and its bits are not all zero."""


@cache
def processors() -> int:
    """Streaming multiprocessors of the GPU; an H200's where there is none."""
    return torch.cuda.get_device_properties().multi_processor_count if torch.cuda.is_available() else 132


@triton.jit
def softmax_tile(x, y, tile, rows, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """ROWS rows of at most WIDTH columns."""
    row = tile * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    real = (row < rows) & (column < columns)
    first = row.to(tl.int64) * columns
    value = tl.load(x + first + column, mask=real, other=-float("inf"))
    powers = tl.exp(value - tl.maximum(tl.max(value, 1, keep_dims=True), LOWEST))
    factor = tl.div_rn(1.0, tl.sum(powers, 1, keep_dims=True))
    tl.store(y + first + column, powers * factor, mask=real)


@triton.jit
def narrow_rows(x, y, rows, units, UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Tile after tile of rows of units * UNIT columns; as a product it tells the compiler how rows are aligned."""
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        softmax_tile(x, y, tile, rows, units * UNIT, ROWS, WIDTH)


@triton.jit
def whole_row(x, y, rows, units, UNIT: tl.constexpr, WIDTH: tl.constexpr):
    """One row of units * UNIT columns."""
    softmax_tile(x, y, tl.program_id(0), rows, units * UNIT, 1, WIDTH)


@triton.jit
def packed(top, total):
    """Maximum and sum in one word, which is never zero: where the maximum is 0, the sum is not."""
    high = top.to(tl.int32, bitcast=True).to(tl.int64) << 32
    return high | total.to(tl.int32, bitcast=True).to(tl.int64)


@triton.jit
def merged(words):
    """Maximum and sum of a row out of those of its parts; words that are zero count for nothing."""
    tops = tl.where(words == 0, LOWEST, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True))
    totals = words.to(tl.int32).to(tl.float32, bitcast=True)
    top = tl.max(tops, 0)
    return top, tl.sum(totals * tl.exp(tops - top), 0)


@triton.jit
def split_rows(
    x, y, words, chunks, units, UNIT: tl.constexpr, CHUNK: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """One chunk of one row, in registers while the other chunks' words arrive. `words` starts as zeros."""
    columns = units * UNIT
    row, chunk = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    real = column < columns
    value = tl.load(x + row * columns + column, mask=real, other=-float("inf"))
    top = tl.maximum(tl.max(value, 0), LOWEST)
    powers = tl.exp(value - top)
    tl.atomic_xchg(words + row * chunks + chunk, packed(top, tl.sum(powers, 0)), sem="relaxed")
    lane = tl.arange(0, WORDS)
    at = words + row * chunks + lane
    found = tl.load(at, mask=lane < chunks, other=1, volatile=True)
    while tl.min(tl.where(found == 0, 0, 1), 0) == 0:
        found = tl.load(at, mask=lane < chunks, other=1, volatile=True)
    highest, total = merged(tl.where(lane < chunks, found, 0))
    factor = tl.exp(top - highest) * tl.div_rn(1.0, total)
    tl.store(y + row * columns + column, powers * factor, mask=real)


@triton.jit
def row_parts(x, words, parts, units, UNIT: tl.constexpr, CHUNK: tl.constexpr):
    """Maximum and sum of every parts-th chunk of one row, online: all programs together move along the row."""
    columns = units * UNIT
    row, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    top = tl.full([], LOWEST, tl.float32)
    total = tl.full([], 0, tl.float32)
    for start in range(part * CHUNK, columns, parts * CHUNK):
        column = start + tl.arange(0, CHUNK)
        value = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf"))
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        top = higher
    tl.store(words + row * parts + part, packed(top, total))


@triton.jit
def row_results(
    x, y, words, parts, chunks, units, UNIT: tl.constexpr, CHUNK: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """One chunk of one row, the last one first: it may still be in the cache."""
    columns = units * UNIT
    task = tl.num_programs(0) - 1 - tl.program_id(0)
    row, chunk = (task // chunks).to(tl.int64), task % chunks
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    real, lane = column < columns, tl.arange(0, WORDS)
    value = tl.load(x + row * columns + column, mask=real, other=-float("inf"), eviction_policy="evict_first")
    top, total = merged(tl.load(words + row * parts + lane, mask=lane < parts, other=0))
    result = tl.exp(value - top) * tl.div_rn(1.0, total)
    tl.store(y + row * columns + column, result, mask=real, eviction_policy="evict_first")


def launch(elements: int, registers: int = REGISTERS) -> dict[str, int]:
    """Options of a program that holds so many elements."""
    warps = min(MOST_WARPS, max(1, elements // TILE))
    return {
        "num_warps": warps,
        "maxnreg": min(registers * max(1, TILE // 1024), REGISTER_FILE // (32 * warps), 255),
    }


def whole(x: torch.Tensor, y: torch.Tensor) -> None:
    rows, columns = x.shape
    unit, width = gcd(columns, UNIT), triton.next_power_of_2(columns)
    if width > TILE:
        whole_row[(rows,)](x, y, rows, columns // unit, unit, width, **launch(width))
        return
    tile = min(MOST_ROWS, max(1, TILE // width))
    grid = (min(triton.cdiv(rows, tile), RESIDENT * processors()),)
    narrow_rows[grid](x, y, rows, columns // unit, unit, tile, width, **launch(width, NARROW_REGISTERS))


def split(x: torch.Tensor, y: torch.Tensor, chunks: int) -> None:
    """In one launch; all chunks of a row must be able to run at the same time."""
    rows, columns = x.shape
    unit, lanes = gcd(columns, UNIT), triton.next_power_of_2(chunks)
    words = torch.zeros(rows * chunks, dtype=torch.int64, device=x.device)
    split_rows[(rows * chunks,)](x, y, words, chunks, columns // unit, unit, CHUNK, lanes, **launch(CHUNK))


def twice(x: torch.Tensor, y: torch.Tensor, chunks: int) -> None:
    """In two launches, x read by both."""
    rows, columns = x.shape
    unit, parts = gcd(columns, UNIT), min(chunks, MOST_WORDS)
    words = torch.empty(rows * parts, dtype=torch.int64, device=x.device)
    row_parts[(rows * parts,)](x, words, parts, columns // unit, unit, CHUNK, **launch(CHUNK))
    lanes = triton.next_power_of_2(parts)
    row_results[(rows * chunks,)](
        x, y, words, parts, chunks, columns // unit, unit, CHUNK, lanes, **launch(CHUNK)
    )


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """y = softmax(x) along rows; both rows x columns, contiguous."""
    chunks = triton.cdiv(x.shape[1], CHUNK)
    if x.shape[1] <= WIDEST:
        whole(x, y)
    elif x.device.type != "cpu" and chunks <= processors():
        split(x, y, chunks)
    else:  # on a CPU programs are interpreted one after another, and none can wait for a later one
        twice(x, y, chunks)
