"""Ragged copy by tiles of the destination: all programs have the same work, however long the segments are.

A tile finds its first and last segment by a search with many pivots at once, of two or three steps. The segments of a
tile then say for each of its positions how far away in the source it lies; in most tiles of long segments all positions
have one shift. Lengths are not needed: where the next segment starts, this one ends.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

TILE, WARPS, READ = knob("VLC_TILE"), knob("VLC_WARPS"), knob("VLC_READ")
FEW = tl.constexpr(knob("VLC_FEW"))
"""Up to so many segments beyond the first are walked through one by one; more are searched for each position."""

WIDEST = 512
"""Pivots of a step of the search."""

LARGEST_TILE, SMALLEST_TILE = 4096, 1024
PER_THREAD = 16
"""Numbers a thread has under way: 64 bytes, with two thirds of a multiprocessor's threads resident."""

ENDLESS = tl.constexpr(2**31 - 1)


@triton.jit
def segments_at(starts, segments, first, last, PIVOTS: tl.constexpr, STEPS: tl.constexpr):
    """Numbers of the segments that hold these two positions: the last ones that start there or before."""
    low, high = 0, 0
    lane = tl.arange(0, PIVOTS)
    for step in tl.static_range(STEPS):
        stride = PIVOTS ** (STEPS - 1 - step)
        below, above = low + lane * stride, high + lane * stride
        before_first = tl.load(starts + below, mask=below < segments, other=ENDLESS) <= first
        before_last = tl.load(starts + above, mask=above < segments, other=ENDLESS) <= last
        counts = tl.sum(before_first.to(tl.int32) + (before_last.to(tl.int32) << 16))
        low += ((counts & 0xFFFF) - 1) * stride
        high += ((counts >> 16) - 1) * stride
    return low, high


@triton.jit
def walked(source_offsets, starts, position, low, high):
    """Places in the source of these positions, which lie in few segments: each takes over from where it starts."""
    place = position + (tl.load(source_offsets + low) - tl.load(starts + low))
    for segment in range(low + 1, high + 1):
        start = tl.load(starts + segment)
        shift = tl.load(source_offsets + segment) - start
        place = tl.where(position >= start, position + shift, place)
    return place


@triton.jit
def searched(source_offsets, starts, position, low, high):
    """The same for many segments, by a binary search for every position."""
    lower = tl.zeros_like(position) + low
    upper = tl.zeros_like(position) + high
    width = high - low
    while width > 0:
        middle = (lower + upper + 1) // 2
        before = tl.load(starts + middle) <= position
        lower = tl.where(before, middle, lower)
        upper = tl.where(before, upper, middle - 1)
        width = width // 2
    return position + (tl.load(source_offsets + lower) - tl.load(starts + lower))


@triton.jit
def copy_tile(
    source, source_offsets, starts, destination, segments, total, TILE: tl.constexpr, PIVOTS: tl.constexpr,
    STEPS: tl.constexpr, READ: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * TILE
    position = first + tl.arange(0, TILE)
    low, high = segments_at(starts, segments, first, tl.minimum(first + TILE, total) - 1, PIVOTS, STEPS)
    if high - low <= FEW:
        place = walked(source_offsets, starts, position, low, high)
    else:
        place = searched(source_offsets, starts, position, low, high)
    real = position < total
    tl.store(destination + position, tl.load(source + place, mask=real, eviction_policy=READ), mask=real)


def search(segments: int) -> tuple[int, int]:
    """(pivots, steps), pivots a power of two and pivots ** steps at least the number of segments."""
    bits, steps = (segments - 1).bit_length(), 1
    while -(-bits // steps) > WIDEST.bit_length() - 1:
        steps += 1
    return 1 << max(1, -(-bits // steps)), steps


def tile_of(segments: int, total: int) -> int:
    """Eight segments of the mean length at the most, so that walking through them costs less than copying."""
    wanted = triton.next_power_of_2(max(1, 8 * total // segments))
    return max(SMALLEST_TILE, min(LARGEST_TILE, wanted))


def run(
    source: torch.Tensor,
    source_offsets: torch.Tensor,
    destination_offsets: torch.Tensor,
    lengths: torch.Tensor,
    destination: torch.Tensor,
) -> None:
    """All int32; offsets and lengths of segments, which tile the destination in their order."""
    segments, total = len(lengths), len(destination)
    tile = TILE or min(tile_of(segments, total), 1024 * (WARPS or 4))
    copy_tile[(triton.cdiv(total, tile),)](
        source, source_offsets, destination_offsets, destination, segments, total, tile, *search(segments),
        "" if READ == "normal" else READ, num_warps=WARPS or max(1, tile // (32 * PER_THREAD)),
    )  # fmt: skip
