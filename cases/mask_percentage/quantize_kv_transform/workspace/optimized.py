"""Rows to int8 with a scale each, in exact tiles: no lane is without an element, no row is alone in its program.

Token and head together number the rows. A width such as 96 is three pieces of 32, each a tile whose width is a power
of two; all pieces of a tile have one layout, so that their maxima combine in registers. Rows past the end repeat the
last one: they store what is stored there anyway, and nothing needs a mask.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

ROWS, PIECE, WARPS = knob("QKV_ROWS"), knob("QKV_PIECE"), knob("QKV_WARPS") or 4
READ, STORE = ("" if knob(name) == "normal" else knob(name) for name in ("QKV_READ", "QKV_STORE"))

LARGEST_TILE = 4096
"""Elements of a program: 32 a thread at 4 warps, 64 bytes of loads under way in each."""

LEAST_LANES = 1024
"""Elements of one piece of a tile: 8 a thread, which is one load of 16 bytes."""

MOST_PIECES = 16

MOST_PER_WARP = 4096
"""Elements; 128 a thread, beyond which they spill."""

SHARE = tl.constexpr(1 / 127)
NEAREST = tl.constexpr(1.5 * 2**23)
"""A float32 this large has no fraction: adding it rounds to nearest, and leaves the number in the low bits."""


@triton.jit
def row_peak(x, at, column, PIECES: tl.constexpr, PIECE: tl.constexpr, READ: tl.constexpr):
    """The pieces of each row, as they are in memory, and the largest magnitude of all of them."""
    pieces = ()
    peak = tl.zeros([at.shape[0]], tl.float32)
    for piece in tl.static_range(PIECES):
        value = tl.load(x + at + (piece * PIECE + column), eviction_policy=READ)
        peak = tl.maximum(peak, tl.max(tl.abs(value.to(tl.float32)), 1))
        pieces = pieces + (value,)  # noqa: RUF005 - Triton knows no starred tuples
    return pieces, peak


@triton.jit
def quantize_exact(
    x, destination, q, scales, rows, HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    PIECE: tl.constexpr, READ: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """ROWS x WIDTH elements, where PIECE divides WIDTH."""
    row = tl.minimum(tl.program_id(0) * ROWS + tl.arange(0, ROWS), rows - 1)
    place = tl.load(destination + row // HEADS) * HEADS + row % HEADS
    column = tl.arange(0, PIECE)[None, :]
    pieces, peak = row_peak(x, row.to(tl.int64)[:, None] * WIDTH, column, WIDTH // PIECE, PIECE, READ)
    factor = tl.where(peak > 0, 127 / peak, 0)[:, None]
    at = place.to(tl.int64)[:, None] * WIDTH
    for piece in tl.static_range(WIDTH // PIECE):
        near = pieces[piece].to(tl.float32) * factor + NEAREST
        whole = near.to(tl.int32, bitcast=True).to(tl.int8)
        tl.store(q + at + (piece * PIECE + column), whole, eviction_policy=STORE)
    tl.store(scales + place, peak * SHARE)


@triton.jit
def quantize_padded(
    x, destination, q, scales, rows, HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    W: tl.constexpr, READ: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """The same for widths with no power of two in them to speak of: columns are padded to W, rows are not."""
    row = tl.minimum(tl.program_id(0) * ROWS + tl.arange(0, ROWS), rows - 1)
    place = tl.load(destination + row // HEADS) * HEADS + row % HEADS
    column = tl.arange(0, W)[None, :]
    real = column < WIDTH
    at = row.to(tl.int64)[:, None] * WIDTH + column
    value = tl.load(x + at, mask=real, other=0, eviction_policy=READ).to(tl.float32)
    peak = tl.max(tl.abs(value), 1)
    near = value * tl.where(peak > 0, 127 / peak, 0)[:, None] + NEAREST
    whole = near.to(tl.int32, bitcast=True).to(tl.int8)
    tl.store(q + place.to(tl.int64)[:, None] * WIDTH + column, whole, mask=real, eviction_policy=STORE)
    tl.store(scales + place, peak * SHARE)


def piece_of(width: int) -> int:
    """The widest power of two that divides the width, or 0 where that makes too many pieces."""
    piece = min(width & -width, PIECE or 128)
    return piece if width // piece <= MOST_PIECES else 0


def rows_of(width: int, piece: int) -> int:
    """Rows of a program: no more elements than LARGEST_TILE, but enough for one wide load a thread."""
    most = max(1, LARGEST_TILE // triton.next_power_of_2(width))
    return max(most, LEAST_LANES // piece)


def run(x: torch.Tensor, destination: torch.Tensor, q: torch.Tensor, scales: torch.Tensor) -> None:
    """x float16 tokens x heads x width, destination int32; q int8 like x, scales float32 tokens x heads."""
    tokens, heads, width = x.shape
    rows, piece = tokens * heads, piece_of(width)
    kernel = quantize_exact if piece else quantize_padded
    lanes = piece or triton.next_power_of_2(width)
    most = max(1, MOST_PER_WARP * WARPS // triton.next_power_of_2(width))
    tile = min(ROWS or rows_of(width, lanes), most)
    kernel[(triton.cdiv(rows, tile),)](
        x, destination, q, scales, rows, heads, width, tile, lanes, READ, STORE, num_warps=WARPS
    )  # fmt: skip
