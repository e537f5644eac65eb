"""Diagonal recurrence and its gradients in one pass over memory, split over time where channels are few.

A program is one warp that owns a few channels for a segment of time. It loads a tile of STEPS x lanes ahead of its
use and scans it in registers: every thread holds whole columns, so the scan is the recurrence itself, multiply-add
by multiply-add, without a shuffle and without powers of the decay. Where there are too few channels to fill the GPU,
time is cut into segments; a first kernel finds what every segment adds to the state (and, backwards, to the gradient).
Complex numbers are lanes (real, imaginary) side by side.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

WIDTH, STEPS, STAGES, SEGMENTS = (knob(f"DS_{name}") for name in ("WIDTH", "STEPS", "STAGES", "SEGMENTS"))

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

IN_FLIGHT = 40 * 1024
"""Bytes that each of them should have under way: 4.3 TB/s at 700 ns of latency are 23 KiB, and then some."""


@triton.jit
def step(a_first, x_first, a_then, x_then):
    """Two steps s -> a*s + x as one; in a thread's own scan the product of decays is never used and drops out."""
    return a_then * a_first, a_then * x_first + x_then


@triton.jit
def step_complex(a_re, a_im, x_re, x_im, b_re, b_im, z_re, z_im):
    """The same for complex numbers: first a, x, then b, z."""
    return (
        b_re * a_re - b_im * a_im, b_re * a_im + b_im * a_re,
        b_re * x_re - b_im * x_im + z_re, b_re * x_im + b_im * x_re + z_im,
    )  # fmt: skip


@triton.jit
def planes(tile, PARTS: tl.constexpr):
    """Real and imaginary parts of the lanes of a tile; a real tile is its own first and second."""
    re, im = tile, tile
    if PARTS == 2:
        re, im = tl.split(tl.reshape(tile, [tile.shape[0], tile.shape[1] // 2, 2]))
    return re, im


@triton.jit
def lanes(re, im, PARTS: tl.constexpr):
    """What planes took apart."""
    tile = re
    if PARTS == 2:
        tile = tl.reshape(tl.join(re, im), [re.shape[0], 2 * re.shape[1]])
    return tile


@triton.jit
def load_tile(pointer, real, EVEN: tl.constexpr):
    """A tile of float32, zero where it is not real; EVEN says that all of it is, which saves a third of the code."""
    return tl.load(pointer) if EVEN else tl.load(pointer, mask=real, other=0.0)


@triton.jit
def store_tile(pointer, value, real, EVEN: tl.constexpr):
    """As load_tile."""
    if EVEN:
        tl.store(pointer, value)
    else:
        tl.store(pointer, value, mask=real)


@triton.jit
def scan_tile(re, im, a_re, a_im, s_re, s_im, PARTS: tl.constexpr):
    """The recurrence over the rows of a tile from state s, and the state after it."""
    steps: tl.constexpr = re.shape[0]
    row = tl.arange(0, steps)[:, None]
    last: tl.constexpr = steps - 1
    b_re = tl.broadcast_to(a_re[None, :], re.shape)
    if PARTS == 1:
        re = tl.where(row == 0, re + (a_re * s_re)[None, :], re)
        _, re = tl.associative_scan((b_re, re), 0, step)
        im = re
    else:
        b_im = tl.broadcast_to(a_im[None, :], re.shape)
        re = tl.where(row == 0, re + (a_re * s_re - a_im * s_im)[None, :], re)
        im = tl.where(row == 0, im + (a_re * s_im + a_im * s_re)[None, :], im)
        _, _, re, im = tl.associative_scan((b_re, b_im, re, im), 0, step_complex)
    s_re = tl.sum(tl.where(row == last, re, 0.0), 0)
    s_im = tl.sum(tl.where(row == last, im, 0.0), 0)
    return re, im, s_re, s_im


@triton.jit
def decays(a, lane, dim, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """a of the WIDTH / PARTS channels from this lane on."""
    channel = (lane // PARTS + tl.arange(0, WIDTH // PARTS)) % dim
    re = tl.load(a + PARTS * channel)
    im = re
    if PARTS == 2:
        im = tl.load(a + 2 * channel + 1)
    return re, im


@triton.jit
def row_planes(pointer, lane, width, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Real and imaginary parts of one row of float32 or float64."""
    count: tl.constexpr = WIDTH // PARTS
    at = lane + PARTS * tl.arange(0, count)
    re = tl.load(pointer + at, mask=at < width, other=0.0)
    im = re
    if PARTS == 2:
        im = tl.load(pointer + at + 1, mask=at < width, other=0.0)
    return re, im


@triton.jit
def store_planes(pointer, re, im, lane, width, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """One row, as row_planes reads it."""
    count: tl.constexpr = WIDTH // PARTS
    at = lane + PARTS * tl.arange(0, count)
    tl.store(pointer + at, re, mask=at < width)
    if PARTS == 2:
        tl.store(pointer + at + 1, im, mask=at < width)


@triton.jit(do_not_specialize=["length", "vectors", "dim", "segment"])
def segment_ends(
    x, dy, a, x_ends, dy_ends, length, vectors, dim, segment,
    VECTOR: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """What each segment adds to the state at its end, and to the gradient at its start; float32 rows."""
    lane, part = tl.program_id(0) * WIDTH, tl.program_id(1)
    width = vectors * VECTOR
    column = lane + tl.arange(0, WIDTH)[None, :]
    row = tl.arange(0, STEPS)[:, None]
    late = STEPS - 1 - row
    at, at_late, inside = row * width + column, late * width + column, column < width
    a_re, a_im = decays(a, lane, dim, WIDTH, PARTS)
    first = part * segment
    count = tl.cdiv(tl.minimum(length - first, segment), STEPS)
    if tl.program_id(2) == 0:
        s_re = tl.zeros([WIDTH // PARTS], tl.float32)
        s_im = s_re
        for tile in tl.range(0, count, num_stages=STAGES):
            time = first + tile * STEPS
            real = row < tl.where(inside, length - time, 0)
            value = load_tile(x + tl.cast(time, tl.int64) * width + at, real, EVEN)
            re, im = planes(value, PARTS)
            _, _, s_re, s_im = scan_tile(re, im, a_re, a_im, s_re, s_im, PARTS)
        store_planes(x_ends + part.to(tl.int64) * width, s_re, s_im, lane, width, WIDTH, PARTS)
    else:
        g_re = tl.zeros([WIDTH // PARTS], tl.float32)
        g_im = g_re
        for tile in tl.range(0, count, num_stages=STAGES):
            time = first + (count - 1 - tile) * STEPS
            real = late < tl.where(inside, length - time, 0)
            value = load_tile(dy + tl.cast(time, tl.int64) * width + at_late, real, EVEN)
            re, im = planes(value, PARTS)
            _, _, g_re, g_im = scan_tile(re, im, a_re, -a_im, g_re, g_im, PARTS)
        store_planes(dy_ends + part.to(tl.int64) * width, g_re, g_im, lane, width, WIDTH, PARTS)


@triton.jit
def power(a_re, a_im, exponent, PARTS: tl.constexpr):
    """a to this integer power in float64, by squaring."""
    b_re, b_im = a_re.to(tl.float64), a_im.to(tl.float64)
    re = tl.zeros_like(b_re) + 1
    im = tl.zeros_like(b_re)
    while exponent > 0:
        if exponent % 2 == 1:
            re, im = multiply(re, im, b_re, b_im, PARTS)
        b_re, b_im = multiply(b_re, b_im, b_re, b_im, PARTS)
        exponent = exponent // 2
    return re, im


@triton.jit
def multiply(a_re, a_im, b_re, b_im, PARTS: tl.constexpr):
    """The product; of real numbers the first parts alone count."""
    re, im = a_re * b_re, a_im
    if PARTS == 2:
        re, im = re - a_im * b_im, a_re * b_im + a_im * b_re
    return re, im


@triton.jit
def handed_over(
    ends, re, im, p_re, p_im, start, stop, by, lane, width, WIDTH: tl.constexpr, PARTS: tl.constexpr
):
    """The state that segments start, start + by, ... before stop leave behind, in float64."""
    re, im = re.to(tl.float64), im.to(tl.float64)
    for part in tl.range(0, (stop - start) // by, num_stages=8):
        end = ends + tl.cast(start + part * by, tl.int64) * width
        e_re, e_im = row_planes(end, lane, width, WIDTH, PARTS)
        re, im = multiply(re, im, p_re, p_im, PARTS)
        re, im = re + e_re, im + e_im
    return re.to(tl.float32), im.to(tl.float32)


@triton.jit(do_not_specialize=["length", "vectors", "dim", "segment", "parts"])
def walk(
    s, x, a, dy, y, ds, dx, shares, x_ends, dy_ends, length, vectors, dim, segment, parts,
    SPLIT: tl.constexpr, VECTOR: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, STEPS: tl.constexpr,
    STAGES: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """y forwards over one segment, then dx and the share of da backwards over it, while y is still near."""
    lane, part = tl.program_id(0) * WIDTH, tl.program_id(1)
    width = vectors * VECTOR
    column = lane + tl.arange(0, WIDTH)[None, :]
    row = tl.arange(0, STEPS)[:, None]
    late = STEPS - 1 - row
    at, at_late, inside = row * width + column, late * width + column, column < width
    a_re, a_im = decays(a, lane, dim, WIDTH, PARTS)
    s_re, s_im = row_planes(s, lane, width, WIDTH, PARTS)
    g_re = tl.zeros([WIDTH // PARTS], tl.float32)
    g_im = g_re
    if SPLIT:
        p_re, p_im = power(a_re, a_im, segment, PARTS)
        s_re, s_im = handed_over(x_ends, s_re, s_im, p_re, p_im, 0, part, 1, lane, width, WIDTH, PARTS)
        g_re, g_im = handed_over(
            dy_ends, g_re, g_im, p_re, -p_im, parts - 1, part, -1, lane, width, WIDTH, PARTS
        )
    entry_re, entry_im = s_re, s_im
    first = part * segment
    count = tl.cdiv(tl.minimum(length - first, segment), STEPS)
    for tile in tl.range(0, count, num_stages=STAGES):
        time = first + tile * STEPS
        start, real = tl.cast(time, tl.int64) * width, row < tl.where(inside, length - time, 0)
        re, im = planes(load_tile(x + start + at, real, EVEN), PARTS)
        re, im, s_re, s_im = scan_tile(re, im, a_re, a_im, s_re, s_im, PARTS)
        store_tile(y + start + at, lanes(re, im, PARTS), real, EVEN)
    tl.debug_barrier()
    share_re = tl.zeros([WIDTH // PARTS], tl.float64)
    share_im = tl.zeros([WIDTH // PARTS], tl.float64)
    for tile in tl.range(0, count, num_stages=STAGES):
        time = first + (count - 1 - tile) * STEPS
        start, real = tl.cast(time, tl.int64) * width, late < tl.where(inside, length - time, 0)
        re, im = planes(load_tile(dy + start + at_late, real, EVEN), PARTS)
        before = at_late - tl.where(late == first - time, 0, width)
        y_re, y_im = planes(load_tile(y + start + before, real, EVEN), PARTS)
        y_re = tl.where(late == first - time, entry_re[None, :], y_re)
        y_im = tl.where(late == first - time, entry_im[None, :], y_im)
        re, im, g_re, g_im = scan_tile(re, im, a_re, -a_im, g_re, g_im, PARTS)
        store_tile(dx + start + at_late, lanes(re, im, PARTS), real, EVEN)
        if PARTS == 1:
            share_re += tl.sum(re * y_re, 0).to(tl.float64)
        else:
            share_re += tl.sum(re * y_re + im * y_im, 0).to(tl.float64)
            share_im += tl.sum(im * y_re - re * y_im, 0).to(tl.float64)
    store_planes(shares + part.to(tl.int64) * width, share_re, share_im, lane, width, WIDTH, PARTS)
    if part == 0:
        g_re, g_im = multiply(g_re, g_im, a_re, -a_im, PARTS)
        store_planes(ds, g_re, g_im, lane, width, WIDTH, PARTS)


@triton.jit
def add_shares(shares, da, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """da = sum of the rows of shares, in float64."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        real = (row < rows) & (column[None, :] < columns)
        total += tl.sum(tl.load(shares + row * columns + column[None, :], mask=real, other=0.0), 0)
    tl.store(da + column, total.to(tl.float32), mask=column < columns)


def vector_of(width: int, parts: int) -> int:
    """Lanes of a thread that lie side by side: two where rows are even, else one, and one far off beside it."""
    return 1 if width % 2 else 2 if parts == 2 or width % 4 else WIDTH or 2


def segment_of(length: int, tiles: int, steps: int) -> int:
    """Steps of a segment: all of them where the channels give every processor a warp or two, else about eight."""
    some = 1 << (8 * PROCESSORS // tiles).bit_length() - 1 if tiles < 1.5 * PROCESSORS else 1
    count = SEGMENTS or min(128, some)
    return triton.cdiv(max(triton.cdiv(length, count), min(count - 1, 2) * steps, 1), steps) * steps


def stages_of(tile_bytes: int, programs: int) -> int:
    """Tiles in work at once, so that enough bytes are under way however few programs share a processor."""
    each = min(16, max(1, programs // PROCESSORS))
    return STAGES or min(8, max(3, 1 + triton.cdiv(IN_FLIGHT, tile_bytes * each)))


def run(
    s: torch.Tensor, x: torch.Tensor, a: torch.Tensor, dy: torch.Tensor,
    y: torch.Tensor, ds: torch.Tensor, dx: torch.Tensor, da: torch.Tensor,
) -> None:  # fmt: skip
    """s (batch, dim), x, dy, y, dx (length, batch, dim), a, da (dim), all float32; complex where one more
    dimension (real, imaginary) follows."""
    length, batch, dim = x.shape[:3]
    parts = 2 if x.dim() == 4 else 1
    width = batch * dim * parts
    vector = vector_of(width, parts)
    # Two lanes a thread at the least: of one, Triton 3.6 lays tiles out by columns, sixteen lanes a bank.
    lanes_each = 32 * max(2, vector)
    steps = STEPS or min(16 if vector > parts else 8, max(4, triton.next_power_of_2(length)))
    tiles = triton.cdiv(width, lanes_each)
    segment = segment_of(length, tiles, steps)
    count = triton.cdiv(length, segment)
    shares = torch.empty((count, width), dtype=torch.float64, device=x.device)
    ends = torch.empty((2, count, width) if count > 1 else (2, 1), dtype=torch.float32, device=x.device)
    tile = {"VECTOR": vector, "WIDTH": lanes_each, "PARTS": parts, "STEPS": steps}
    tile["EVEN"] = length % segment == 0 and width % lanes_each == 0
    tile["STAGES"] = stages_of(4 * lanes_each * steps, tiles * count)
    if count > 1:
        segment_ends[(tiles, count, 2)](
            x, dy, a, ends[0], ends[1], length, width // vector, dim, segment, **tile, num_warps=1
        )  # fmt: skip
    walk[(tiles, count)](
        s, x, a, dy, y, ds, dx, shares, ends[0], ends[1], length, width // vector, dim, segment, count,
        SPLIT=count > 1, **tile, num_warps=1,
    )  # fmt: skip
    columns = dim * parts
    add_shares[(triton.cdiv(columns, 32),)](
        shares, da, count * batch, columns, ROWS=32, BLOCK=32, num_warps=4
    )
