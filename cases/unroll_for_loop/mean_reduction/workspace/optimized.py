"""Mean over any of up to four dimensions, x read once and in the order it lies in memory.

Neighbouring dimensions that are treated alike are one, and then every x is batches x outer x groups x inner x columns:
averaged over `outer` and `inner`, with one of batches and columns of length one.

- Without columns, what is averaged lies side by side: a program takes some results and steps along `inner`.
- With columns, results lie side by side: a program takes a block of columns and steps down `inner`.
- Too few results to fill the GPU: each is split into parts, whose sums a second, small launch adds up.
"""

from __future__ import annotations

from functools import cache
from math import gcd

import torch
import triton
import triton.language as tl
from knobs import knob

TILE = knob("MEAN_TILE")
VECTORS, SINGLES = 2048, 1024
"""Elements a program loads in a step, 16 a thread: four 16-byte loads under way, or each by itself."""

COLUMNS = knob("MEAN_COLUMNS") or 128
"""Fewest columns of a program that splits: 512 bytes lie side by side."""

RESIDENT = knob("MEAN_RESIDENT")
WIDE, PLANES, SCALAR = 12, 10, 16
"""Programs for each multiprocessor: 12 of four warps at 40 registers a thread, when 96 KiB are under way on it; 10
where outer planes are far apart, at 48; 16 of two where elements are loaded one by one, at 56. A program too many would
run when all others have ended."""

PER_THREAD = 16
VECTOR = 4
"""float32 elements of the widest load."""

FEWEST_STEPS = 8
"""Of a part, lest starting it takes longer than what it does."""

WAVES = 8
"""Times as many programs as are resident, at the most; they go from tile to tile of results."""

MAX_COLUMNS = 512
NARROWEST, LARGEST = 32, 16384
"""Columns of a program that adds parts, and elements of one of its steps."""


@cache
def processors() -> int:
    """Streaming multiprocessors of the GPU; an H200's where there is none."""
    return torch.cuda.get_device_properties().multi_processor_count if torch.cuda.is_available() else 132


@triton.jit
def sums_along(
    x, y, results, groups, outer, units, steps, count, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    SINGLE: tl.constexpr,
):  # fmt: skip
    """Tiles of ROWS results, batch by batch and group by group, over one part of outer x inner, which is units * UNIT.

    A part is `steps` blocks of BLOCK elements of inner. Sums are divided by `count`. SINGLE: inner is
    one block.
    """
    inner = units * UNIT
    blocks = tl.cdiv(inner, BLOCK)
    start = tl.program_id(1) * steps
    end = tl.minimum(start + steps, outer * blocks)
    for tile in range(tl.program_id(0), tl.cdiv(results, ROWS), tl.num_programs(0)):
        result = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
        batch = result // groups
        first = x + (batch * outer * groups + result - batch * groups) * inner
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for step in range(start, end):
            at, plane = tl.arange(0, BLOCK)[None, :], step
            if not SINGLE:
                at, plane = at + step % blocks * BLOCK, step // blocks
            far = tl.cast(plane, tl.int64) * groups * inner
            total += tl.load(first + far + at, mask=(result < results) & (at < inner), other=0)
        found = tl.div_rn(tl.sum(total, 1, keep_dims=True), count)
        tl.store(y + result * tl.num_programs(1) + tl.program_id(1), found, mask=result < results)


@triton.jit
def column_sums(total, ROWS: tl.constexpr, BLOCK: tl.constexpr, TOGETHER: tl.constexpr = 16):
    """Over rows; of many rows in two stages, so that no chain of sums is long."""
    if ROWS > TOGETHER:
        total = tl.sum(tl.reshape(total, [ROWS // TOGETHER, TOGETHER, BLOCK]), 0)
    return tl.sum(total, 0)


@triton.jit
def sums_across(
    x, y, groups, inner, rows, units, size, count, UNIT: tl.constexpr, NESTED: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK columns of a group over one part of the rows, which are outer x inner; columns are units * UNIT.

    A part is `size` rows. Sums are divided by `count`. NESTED: outer is not one.
    """
    columns = units * UNIT
    blocks = tl.cdiv(columns, BLOCK)
    group = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    first = x + group * inner * columns + column[None, :]
    start = tl.program_id(1) * size
    end = tl.minimum(start + size, rows)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for step in range(start, end, ROWS):
        row = (step + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        far = row * columns
        if NESTED:
            far += row // inner * (groups - 1) * inner * columns
        total += tl.load(first + far, mask=(row < end) & (column < columns)[None, :], other=0)
    to = y + (tl.program_id(1).to(tl.int64) * groups + group) * columns
    tl.store(to + column, tl.div_rn(column_sums(total, ROWS, BLOCK), count), mask=column < columns)


def merged(shape: torch.Size, averaged: set[int]) -> list[int]:
    """Batches, outer, groups, inner and columns: each dimension, last first, in the next of them that fits."""
    sizes, slot = [1, 1, 1, 1, 1], 4
    for dim in reversed(range(len(shape))):
        if shape[dim] == 1:
            continue
        if (dim in averaged) != (slot in (1, 3)):
            slot -= 1
        sizes[slot] *= shape[dim]
    return sizes


def tile_of(unit: int) -> int:
    """Elements that a program loads in a step, in vectors of this length."""
    return TILE or (VECTORS if unit > 1 else SINGLES)


def resident(unit: int, nested: bool = False) -> int:
    """Programs that load vectors of this length and fill the GPU."""
    wide = PLANES if nested else WIDE
    return (RESIDENT or (wide if unit > 1 else SCALAR)) * processors()


def parts_of(steps: int, programs: int, places: int) -> int:
    """Parts into which so many steps of each of so many programs are split, to fill so many places on the GPU."""
    return max(1, min(places // programs, steps // FEWEST_STEPS))


def along(x: torch.Tensor, y: torch.Tensor, sizes: list[int], count: int) -> None:
    """Means of batches x outer x groups x inner over outer and inner."""
    batches, outer, groups, inner = sizes
    results, unit = batches * groups, gcd(inner, VECTOR)
    block = min(tile_of(unit), triton.next_power_of_2(inner))
    tile = min(tile_of(unit) // block, triton.next_power_of_2(results))
    tiles, steps = triton.cdiv(results, tile), outer * triton.cdiv(inner, block)
    each = triton.cdiv(steps, parts_of(steps, tiles, resident(unit)))
    parts = triton.cdiv(steps, each)
    found = y if parts == 1 else torch.empty(results * parts, dtype=torch.float32, device=x.device)
    sums_along[(min(tiles, WAVES * resident(unit)), parts)](
        x, found, results, groups, outer, inner // unit, each, float(count if parts == 1 else 1),
        unit, tile, block, inner <= block, num_warps=warps_for(tile * block),
    )  # fmt: skip
    if parts > 1:
        along(found, y, [1, 1, results, parts], count)


def across(x: torch.Tensor, y: torch.Tensor, sizes: list[int], count: int) -> None:
    """Means of outer x groups x inner x columns over outer and inner."""
    outer, groups, inner, columns = sizes
    rows, unit = outer * inner, gcd(columns, VECTOR)
    places = resident(unit, outer > 1)
    block = block_of(columns, groups, unit, places)
    tile = min(tile_of(unit) // block, triton.next_power_of_2(rows))
    programs, steps = groups * triton.cdiv(columns, block), triton.cdiv(rows, tile)
    size = triton.cdiv(steps, parts_of(steps, programs, places)) * tile
    parts = triton.cdiv(rows, size)
    found = y if parts == 1 else torch.empty(parts * groups * columns, dtype=torch.float32, device=x.device)
    sums_across[(programs, parts)](
        x, found, groups, inner, rows, columns // unit, size, float(count if parts == 1 else 1),
        unit, outer > 1, tile, block, num_warps=warps_for(tile * block),
    )  # fmt: skip
    if parts > 1:
        add_parts(found, y, parts, groups * columns, count)


def add_parts(found: torch.Tensor, y: torch.Tensor, parts: int, columns: int, count: int) -> None:
    """Means out of the sums of parts x columns, in a step or two of many narrow programs."""
    unit, block = gcd(columns, VECTOR), min(NARROWEST, triton.next_power_of_2(columns))
    tile = min(LARGEST // block, triton.next_power_of_2(parts))
    sums_across[(triton.cdiv(columns, block), 1)](
        found, y, 1, parts, parts, columns // unit, parts, float(count),
        unit, False, tile, block, num_warps=warps_for(tile * block),
    )  # fmt: skip


def block_of(columns: int, groups: int, unit: int, places: int) -> int:
    """Columns of a program: fewer where programs would not fill the GPU, but not too few to lie side by side."""
    block = min(MAX_COLUMNS, tile_of(unit), triton.next_power_of_2(columns))
    while block > COLUMNS and groups * triton.cdiv(columns, block) < places:
        block //= 2
    return block


def warps_for(elements: int) -> int:
    return min(32, max(1, elements // (32 * PER_THREAD)))


def run(x: torch.Tensor, y: torch.Tensor, *, dims: str) -> None:
    """y = mean of x over the dimensions listed in `dims`, as "0,2"; they are of length one in y. Both contiguous."""
    batches, outer, groups, inner, columns = merged(x.shape, {int(dim) for dim in dims.split(",")})
    if columns == 1:
        along(x, y, [batches, outer, groups, inner], outer * inner)
    else:
        across(x, y, [outer, groups, inner, columns], outer * inner)
