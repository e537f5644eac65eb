"""Rows to int8 with a scale each, in the order in which they are written.

Memory takes reads from anywhere better than writes to anywhere: a small launch first finds the token that each place
gets, and q and its scales are then written one after another. Only where all is small, rows are read in their order.

Token and head together number the rows. A width such as 96 is three pieces of 32, each a tile whose width is a power
of two: no lane is masked, and every store fills sectors of 32 bytes. Each such tile has a program. Where pieces would
be narrower, rows are padded to a power of two instead, so that what a warp reads and writes is contiguous, and as many
programs as the GPU holds at once go from tile to tile. The tokens of the next one are loaded while this one is worked
on: left to itself, the compiler puts that load behind the wait for x. Rows past the end repeat the last one: they store
what is stored there anyway.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

FORM, PIECE, LANE, RESIDENT, WARPS, ORDER = (
    knob(f"QKV_{n}") for n in ("FORM", "PIECE", "LANE", "RESIDENT", "WARPS", "ORDER")
)
READ, STORE, KEEP = ("" if knob(n) == "normal" else knob(n) for n in ("QKV_READ", "QKV_STORE", "QKV_SCALES"))

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

SECTOR = 32
"""Bytes, and elements of q, below which a piece of a row is not stored at once."""

FEWEST_TILES = 16
"""Of a program: with fewer, some would have visibly more to do than others, and each gets one tile instead."""

FEWEST_GATHERED = 2**24
"""Elements from which on a launch finds tokens first. At 4 M it costs more than writes to anywhere, at 38 M as much."""

MAX_WARPS, IN_FLIGHT = 48, 40 << 10
"""Of the programs of a multiprocessor that stay: warps, and bytes they read at once."""

TOKENS = 256
"""Of a program that finds where tokens go."""

MAX_PIECES = 4
"""All pieces of a tile are in registers, 8 elements a thread each."""

SHARE = tl.constexpr(1 / 127)
NEAREST = tl.constexpr(1.5 * 2**23)
"""A float32 this large has no fraction: adding it rounds to nearest, and leaves the number in the low bits."""


@triton.jit
def invert(destination, source, tokens, TOKENS: tl.constexpr):
    """Of each place the token that goes there."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    real = token < tokens
    tl.store(source + tl.load(destination + token, mask=real), token, mask=real)


@triton.jit
def rows_of(tile, rows, ROWS: tl.constexpr):
    return tl.minimum(tile * ROWS + tl.arange(0, ROWS), rows - 1)


@triton.jit
def others_of(tokens, row, HEADS: tl.constexpr):
    """The rows that these go to or come from, as their tokens do."""
    return tl.load(tokens + row // HEADS) * HEADS + row % HEADS


@triton.jit
def quantize_tiles(
    x, tokens, q, scales, rows, tiles, HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    PIECE: tl.constexpr, GATHER: tl.constexpr, STAY: tl.constexpr, READ: tl.constexpr, STORE: tl.constexpr,
    KEEP: tl.constexpr,
):  # fmt: skip
    """ROWS x WIDTH elements a tile, in pieces of PIECE columns, of which the last may be masked in part.

    Tiles are of q, and `tokens` those of x for its places, where GATHER; else tiles are of x, and `tokens` places in q.
    STAY: a program has more tiles than one.
    """
    pieces: tl.constexpr = (WIDTH + PIECE - 1) // PIECE
    column = tl.arange(0, PIECE)[None, :]
    other = others_of(tokens, rows_of(tl.program_id(0), rows, ROWS), HEADS)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = rows_of(tile, rows, ROWS)
        at = (other if GATHER else row).to(tl.int64)[:, None] * WIDTH
        place = row if GATHER else other
        values = ()
        peak = tl.zeros([ROWS], tl.float32)
        for piece in tl.static_range(pieces):
            real = piece * PIECE + column < WIDTH
            value = tl.load(x + at + (piece * PIECE + column), mask=real, other=0, eviction_policy=READ)
            values = values + (value,)  # noqa: RUF005 - Triton knows no starred tuples
        if STAY:
            other = others_of(tokens, rows_of(tile + tl.num_programs(0), rows, ROWS), HEADS)
        for piece in tl.static_range(pieces):
            peak = tl.maximum(peak, tl.max(tl.abs(values[piece].to(tl.float32)), 1))
        factor = tl.where(peak > 0, 127 / peak, 0)[:, None]
        to = place.to(tl.int64)[:, None] * WIDTH
        for piece in tl.static_range(pieces):
            real = piece * PIECE + column < WIDTH
            near = values[piece].to(tl.float32) * factor + NEAREST
            whole = near.to(tl.int32, bitcast=True).to(tl.int8)
            tl.store(q + to + (piece * PIECE + column), whole, mask=real, eviction_policy=STORE)
        tl.store(scales + place, peak * SHARE, eviction_policy=KEEP)


def piece_of(width: int) -> int:
    """Columns of a piece: the widest power of two that divides the width, or all of them, padded."""
    padded = triton.next_power_of_2(width)
    piece = min(width & -width, PIECE or padded)
    if FORM == "pieces":
        return piece
    return padded if FORM == "padded" or piece < SECTOR or width // piece > MAX_PIECES else piece


def resident(tile_bytes: int, warps: int) -> int:
    """Programs of a multiprocessor that stay."""
    return RESIDENT or max(1, min(MAX_WARPS // warps, IN_FLIGHT // tile_bytes))


def run(x: torch.Tensor, destination: torch.Tensor, q: torch.Tensor, scales: torch.Tensor) -> None:
    """x float16 tokens x heads x width, destination int32, a permutation; q int8 like x, scales float32 tokens x heads.

    A thread has 8 elements of each piece, or 16 where there is one: 16 bytes to load, or to store.
    """
    tokens, heads, width = x.shape
    rows, piece = tokens * heads, piece_of(width)
    warps = WARPS or (2 if piece < width else 4)
    tile = max(1, 32 * warps * (LANE or (8 if piece < width else 16)) // piece)
    tiles = triton.cdiv(rows, tile)
    programs = PROCESSORS * resident(tile * width * x.element_size(), warps)
    if not RESIDENT and (piece < width or tiles < FEWEST_TILES * programs):
        programs = tiles
    gather = ORDER == "written" or (ORDER == "shape" and x.numel() >= FEWEST_GATHERED)
    found = torch.empty_like(destination) if gather else destination
    if gather:
        invert[(triton.cdiv(tokens, TOKENS),)](destination, found, tokens, TOKENS, num_warps=TOKENS // 64)
    quantize_tiles[(min(tiles, programs),)](
        x, found, q, scales, rows, tiles, heads, width, tile, piece, gather, programs < tiles, READ, STORE, KEEP,
        num_warps=warps,
    )  # fmt: skip
