"""y = softmax(x) along rows of float32: x read from memory once, for rows of any width.

- Narrow rows, at most 1024 columns: a program holds as many whole rows as one warp can.
- Rows up to WIDEST columns: a row a program, in registers from its maximum to its result. Those that start anywhere are
  walked between multiples of 16 bytes, a few elements at both ends apart.
- Some widths between: a row a program, read twice, the second time from the L1 cache; so no thread holds much.
- Wider rows: each program holds one chunk, 2048 elements a warp. It publishes the chunk's maximum and sum in one
  64-bit word, waits until the words of all chunks of its row are there, and writes its part. Programs start in the
  order of their numbers and there are no more chunks in a row than multiprocessors, so those that are waited for always
  get to run. With SOFTMAX_SPAN a program has the same chunk of several rows, and reads one while words of the row
  before arrive.
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

TILE = knob("SOFTMAX_TILE")
"""Elements a warp holds. 0: 1024, eight 16-byte loads a thread under way, in few enough registers for 32 warps; 2048 in
split rows, whose 20 warps hold more than 32 of half as many."""

WIDEST = knob("SOFTMAX_WIDEST") or 32768
CHUNK = knob("SOFTMAX_CHUNK") or 8192
SPAN = knob("SOFTMAX_SPAN")
STAGES = knob("SOFTMAX_STAGES")
RESIDENT = knob("SOFTMAX_RESIDENT")
NARROW_WARPS = knob("SOFTMAX_NARROW_WARPS") or 1
OVERLAP = knob("SOFTMAX_OVERLAP")
WALK, WALK_WARPS = knob("SOFTMAX_WALK"), knob("SOFTMAX_WALK_WARPS")

REGISTERS = knob("SOFTMAX_REGISTERS")
"""Of a thread at the most. 0: 64 (32 warps on a multiprocessor), 96 where narrow rows start anywhere, 128 where
elements of two rows are held, and 32 more where a warp holds 2048 elements."""

STORES = tl.constexpr(".cs" if knob("SOFTMAX_STREAM") else "")

REGISTER_FILE = 65536
"""Registers of a multiprocessor."""

UNIT = 4
"""float32 elements in 16 bytes, the widest load; rows whose length this divides are read so."""

MAX_WARPS = 32
WALKED = range(4096, (knob("SOFTMAX_WALKED") or 8192) + 1)
"""Columns of rows that are read twice, where they are aligned."""

MAX_ROWS = 64
MAX_WORDS = 512
"""Parts of a row in two launches; each program of the second reads them all."""

LOWEST = tl.constexpr(-3e38)
"""A maximum to start from: finite, so that -inf meets no -inf, and its bits are not all zero."""


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
def softmax_tile(x, y, tile, rows, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """ROWS rows of at most WIDTH columns."""
    row = tile * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    real = (row < rows) & (column < columns)
    first = row.to(tl.int64) * columns
    value = tl.load(x + first + column, mask=real, other=-float("inf"))
    powers = tl.exp(value - tl.maximum(tl.max(value, 1, keep_dims=True), LOWEST))
    factor = tl.div_rn(1.0, tl.sum(powers, 1, keep_dims=True))
    tl.store(y + first + column, powers * factor, mask=real, cache_modifier=STORES)


@triton.jit
def narrow_rows(
    x, y, rows, units, UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """A tile of rows of units * UNIT columns, or several; as a product it tells the compiler how rows are aligned."""
    begin(OVERLAP)
    if STAGES == 0:
        softmax_tile(x, y, tl.program_id(0), rows, units * UNIT, ROWS, WIDTH)
    else:
        for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
            softmax_tile(x, y, tile, rows, units * UNIT, ROWS, WIDTH)


@triton.jit
def whole_row(x, y, rows, units, UNIT: tl.constexpr, WIDTH: tl.constexpr, OVERLAP: tl.constexpr):
    """One row of units * UNIT columns."""
    begin(OVERLAP)
    softmax_tile(x, y, tl.program_id(0), rows, units * UNIT, 1, WIDTH)


@triton.jit
def walked_row(x, y, COLUMNS: tl.constexpr, STEP: tl.constexpr, OVERLAP: tl.constexpr):
    """One row, read twice: the second time from the L1 cache, so that no thread holds much and many warps are there.

    COLUMNS is constant, so that a walk of few steps is no loop.
    """
    x += tl.program_id(0).to(tl.int64) * COLUMNS
    y += tl.program_id(0).to(tl.int64) * COLUMNS
    top = tl.full([STEP], LOWEST, tl.float32)
    total = tl.zeros([STEP], tl.float32)
    begin(OVERLAP)
    for start in range(0, COLUMNS, STEP):
        column = start + tl.arange(0, STEP)
        value = tl.load(x + column, mask=column < COLUMNS, other=-float("inf"), eviction_policy="evict_last")
        higher = tl.maximum(top, value)
        total = total * tl.exp(top - higher) + tl.exp(value - higher)
        top = higher
    highest = tl.max(top, 0)
    factor = tl.div_rn(1.0, tl.sum(total * tl.exp(top - highest), 0))
    for start in range(0, COLUMNS, STEP):
        column = start + tl.arange(0, STEP)
        value = tl.load(x + column, mask=column < COLUMNS, other=0, eviction_policy="evict_first")
        tl.store(y + column, tl.exp(value - highest) * factor, mask=column < COLUMNS, cache_modifier=STORES)


@triton.jit
def read(x, column, columns):
    """Columns of the row that x points to; those that do not exist are as low as can be."""
    return tl.load(x + column, mask=column < columns, other=-float("inf"))


@triton.jit
def ragged_row(
    x, y, columns, ALIGNED: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, OVERLAP: tl.constexpr
):  # fmt: skip
    """One row that starts anywhere, at most LOW + HIGH columns, between multiples of ALIGNED; its ends are apart."""
    first = tl.program_id(0).to(tl.int64) * columns
    head = ((ALIGNED - first % ALIGNED) % ALIGNED).to(tl.int32)
    body = (columns - head) // ALIGNED * ALIGNED
    first = (first + head) // ALIGNED * ALIGNED
    x += first
    y += first
    left, right = tl.arange(0, LOW), LOW + tl.arange(0, HIGH)
    edge = tl.arange(0, 2 * ALIGNED) - ALIGNED
    at = tl.where(edge < 0, edge, body + edge)
    there = (at >= -head) & (at < columns - head)
    begin(OVERLAP)
    low, high = read(x, left, body), read(x, right, body)
    apart = tl.load(x + at, mask=there, other=-float("inf"))
    if LOW <= 4 * HIGH:  # to HIGH numbers within threads, then one reduction across them
        top = tl.max(tl.maximum(tl.max(tl.reshape(low, [LOW // HIGH, HIGH]), 0), high), 0)
    else:
        top = tl.maximum(tl.max(low, 0), tl.max(high, 0))
    top = tl.maximum(tl.maximum(top, tl.max(apart, 0)), LOWEST)
    low, high, apart = tl.exp(low - top), tl.exp(high - top), tl.exp(apart - top)
    if LOW <= 4 * HIGH:
        total = tl.sum(tl.sum(tl.reshape(low, [LOW // HIGH, HIGH]), 0) + high, 0)
    else:
        total = tl.sum(low, 0) + tl.sum(high, 0)
    factor = tl.div_rn(1.0, total + tl.sum(apart, 0))
    tl.store(y + left, low * factor, mask=left < body, cache_modifier=STORES)
    tl.store(y + right, high * factor, mask=right < body, cache_modifier=STORES)
    tl.store(y + at, apart * factor, mask=there)


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
def fetch(x, word, column, columns):
    """exp(x - maximum) of a chunk and the maximum, which is published with the sum."""
    value = read(x, column, columns)
    top = tl.maximum(tl.max(value, 0), LOWEST)
    powers = tl.exp(value - top)
    tl.atomic_xchg(word, packed(top, tl.sum(powers, 0)), sem="relaxed")
    return powers, top


@triton.jit
def finish(powers, top, y, words, column, columns, chunks, WORDS: tl.constexpr):
    """Write a chunk, once the words of its row's other chunks are there too."""
    lane = tl.arange(0, WORDS)
    found = tl.load(words + lane, mask=lane < chunks, other=1, volatile=True)
    while tl.min(tl.where(found == 0, 0, 1), 0) == 0:
        found = tl.load(words + lane, mask=lane < chunks, other=1, volatile=True)
    highest, total = merged(tl.where(lane < chunks, found, 0))
    factor = tl.exp(top - highest) * tl.div_rn(1.0, total)
    tl.store(y + column, powers * factor, mask=column < columns, cache_modifier=STORES)


@triton.jit
def split_rows(
    x, y, words, chunks, units, UNIT: tl.constexpr, CHUNK: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """One chunk of one row, in registers while the other chunks' words arrive. `words` starts as zeros."""
    columns = units * UNIT
    row, chunk = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    powers, top = fetch(x + row * columns, words + row * chunks + chunk, column, columns)
    finish(powers, top, y + row * columns, words + row * chunks, column, columns, chunks, WORDS)


@triton.jit
def chunk_of_rows(
    x, y, words, rows, chunks, span, units, UNIT: tl.constexpr, CHUNK: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """The same chunk of `span` rows; each is written when the next one's word is published.

    So the other programs' words have as long as a load takes to arrive. `words` starts as zeros.
    """
    columns = units * UNIT
    row, chunk = tl.program_id(0) // chunks * span, tl.program_id(0) % chunks
    last, column = tl.minimum(row + span, rows) - 1, chunk * CHUNK + tl.arange(0, CHUNK)
    x += row.to(tl.int64) * columns
    y += row.to(tl.int64) * columns
    words += row * chunks
    powers, top = fetch(x, words + chunk, column, columns)
    for _ in range(row, last):
        x += columns
        next_powers, next_top = fetch(x, words + chunks + chunk, column, columns)
        finish(powers, top, y, words, column, columns, chunks, WORDS)
        powers, top = next_powers, next_top
        y += columns
        words += chunks
    finish(powers, top, y, words, column, columns, chunks, WORDS)


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


def launch(elements: int, registers: int = 64, each: int = 1024) -> dict[str, int]:
    """Options of a program that holds so many elements, `each` a warp; beyond 1024 they need registers besides."""
    each = TILE or each
    warps = min(MAX_WARPS, max(1, triton.next_power_of_2(triton.cdiv(elements, each))))
    registers = REGISTERS or registers + max(0, each - 1024) // 32
    return {"num_warps": warps, "maxnreg": min(registers, REGISTER_FILE // (32 * warps), 255)}


def overlapping(x: torch.Tensor, chunks: int = 1) -> dict[str, bool]:
    """Option and constant of a launch that is prepared while the kernel before it ends; zeros are set by no kernel."""
    on = OVERLAP and chunks == 1 and x.device.type != "cpu"
    return {"OVERLAP": True, "launch_pdl": True} if on else {"OVERLAP": False}


def whole(x: torch.Tensor, y: torch.Tensor) -> None:
    rows, columns = x.shape
    unit, width = gcd(columns, UNIT), triton.next_power_of_2(columns)
    if columns > 1024 and unit < UNIT:
        low = width // 2
        high = triton.next_power_of_2(columns - low)
        ragged_row[(rows,)](x, y, columns, UNIT, low, high, **overlapping(x), **launch(low + high))
        return
    if columns in WALKED and unit == UNIT:
        warps = WALK_WARPS or min(MAX_WARPS, width * x.element_size() // 2048)
        walked_row[(rows,)](x, y, columns, WALK or width // 2, **overlapping(x), num_warps=warps)
        return
    if columns > 1024:
        whole_row[(rows,)](x, y, rows, columns // unit, unit, width, **overlapping(x), **launch(width))
        return
    held = NARROW_WARPS * (TILE or 1024)
    tile = min(MAX_ROWS, max(1, held // width))
    tiles, registers = triton.cdiv(rows, tile), 64 if unit == UNIT and not RESIDENT else 96
    narrow_rows[(min(tiles, RESIDENT * processors()) if RESIDENT else tiles,)](
        x, y, rows, columns // unit, unit, tile, width, STAGES if RESIDENT else 0,
        **overlapping(x), **launch(held, registers),
    )  # fmt: skip


def split(x: torch.Tensor, y: torch.Tensor, chunks: int) -> None:
    """In one launch; all chunks of a row must be able to run at the same time."""
    rows, columns = x.shape
    unit, lanes = gcd(columns, UNIT), triton.next_power_of_2(chunks)
    words = torch.zeros(rows * chunks, dtype=torch.int64, device=x.device)
    if not SPAN:
        options = launch(CHUNK, 64 if unit == UNIT else 80, 2048)
        split_rows[(rows * chunks,)](x, y, words, chunks, columns // unit, unit, CHUNK, lanes, **options)
        return
    options = launch(CHUNK, 128)
    resident = REGISTER_FILE // (32 * options["num_warps"] * options["maxnreg"]) * processors()
    span = min(SPAN, triton.cdiv(rows, max(1, resident // chunks)))
    chunk_of_rows[(triton.cdiv(rows, span) * chunks,)](
        x, y, words, rows, chunks, span, columns // unit, unit, CHUNK, lanes, **options
    )


def twice(x: torch.Tensor, y: torch.Tensor, chunks: int) -> None:
    """In two launches, x read by both."""
    rows, columns = x.shape
    unit, parts = gcd(columns, UNIT), min(chunks, MAX_WORDS)
    words = torch.empty(rows * parts, dtype=torch.int64, device=x.device)
    row_parts[(rows * parts,)](x, words, parts, columns // unit, unit, CHUNK, **launch(CHUNK, 80))
    lanes = triton.next_power_of_2(parts)
    row_results[(rows * chunks,)](
        x, y, words, parts, chunks, columns // unit, unit, CHUNK, lanes, **launch(CHUNK, 80)
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
