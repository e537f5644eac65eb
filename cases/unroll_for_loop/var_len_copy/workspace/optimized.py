"""Ragged copy by tiles of the destination: all programs have the same work, however long the segments are.

A tile finds its first and last segment by a search with many pivots at once; where that would take three steps, a small
launch of its own finds the first segments of all tiles beforehand. Where it takes two, a program has a few tiles and
searches anew only where a segment ends. Where first and last are one, the tile is copied as it lies, without an address
or a mask for each position. Where there are a few, all positions walk along them. Else each group of four positions,
which is stored at once, finds its segment by a binary search in those of the tile; the groups in which another one
begins, of which there are few, take over from there. Lengths are not needed: where the next segment starts, this one
ends.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from knobs import knob

TILE, WARPS, PIVOTS, READ, AHEAD = (knob(f"VLC_{n}") for n in ("TILE", "WARPS", "PIVOTS", "READ", "AHEAD"))
WALKED, REALIGN, SPAN = knob("VLC_WALKED"), knob("VLC_REALIGN"), knob("VLC_SPAN")

FEWEST, WIDEST = 16, 64
"""Pivots of a step of the search: more are more places in memory, and only the last step's lie side by side."""

GROUP = tl.constexpr(4)
"""Positions of a group: 16 bytes."""

NUMBERS = 1024
"""Of a tile."""

PER_THREAD = 16
"""Numbers a thread has under way: 64 bytes."""

SEARCHED_TILES = 3
"""Tiles of a program that searches in two steps."""

LANES = 128
"""Tiles of a program that finds their segments."""

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
def segment_of(starts, position, low, high):
    """For each position its segment, between low and high."""
    lower = tl.zeros_like(position) + low
    upper = tl.zeros_like(position) + high
    width = high - low
    while width > 0:
        middle = (lower + upper + 1) // 2
        before = tl.load(starts + middle) <= position
        lower = tl.where(before, middle, lower)
        upper = tl.where(before, upper, middle - 1)
        width = width // 2
    return lower


@triton.jit
def find_tiles(starts, found, segments, total, tiles, TILE: tl.constexpr, LANES: tl.constexpr):
    """The segment that each tile begins in, and the last one after all of them."""
    tile = tl.program_id(0) * LANES + tl.arange(0, LANES)
    segment = segment_of(starts, tl.minimum(tile * TILE, total - 1), 0, segments - 1)
    tl.store(found + tile, segment, mask=tile <= tiles)


@triton.jit
def places(source_offsets, starts, first, low, high):
    """Where in the source the positions of groups lie that start at `first`, four each, of segments low to high."""
    position = first[:, None] + tl.arange(0, GROUP)[None, :]
    lower = segment_of(starts, first, low, high)
    place = position + (tl.load(source_offsets + lower) - tl.load(starts + lower))[:, None]
    lower += 1
    start = tl.load(starts + lower, mask=lower <= high, other=ENDLESS)
    while tl.min(start - first, 0) < GROUP:
        shift = tl.load(source_offsets + lower, mask=lower <= high, other=0) - start
        place = tl.where(position >= start[:, None], position + shift[:, None], place)
        lower += 1
        start = tl.load(starts + lower, mask=lower <= high, other=ENDLESS)
    return place


@triton.jit
def quarters(x):
    """Of each four numbers the first, second, third and fourth."""
    even, odd = tl.split(tl.reshape(x, [x.shape[0] // 4, 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def read_run(source, start, TILE: tl.constexpr, READ: tl.constexpr):
    """TILE numbers from anywhere, by aligned words of four, each read twice: the second time from the L1 cache."""
    skew = start % 4
    aligned = source + tl.multiple_of(start - skew, 4) + tl.arange(0, TILE)
    a, b, c, d = quarters(tl.load(aligned, eviction_policy=READ))
    e, f, g, _ = quarters(tl.load(aligned + 4, eviction_policy=READ))
    first = tl.where(skew == 0, a, tl.where(skew == 1, b, tl.where(skew == 2, c, d)))
    second = tl.where(skew == 0, b, tl.where(skew == 1, c, tl.where(skew == 2, d, e)))
    third = tl.where(skew == 0, c, tl.where(skew == 1, d, tl.where(skew == 2, e, f)))
    fourth = tl.where(skew == 0, d, tl.where(skew == 1, e, tl.where(skew == 2, f, g)))
    return tl.reshape(tl.join(tl.join(first, third), tl.join(second, fourth)), [TILE])


@triton.jit
def copy_walking(
    source, source_offsets, starts, destination, first, total, low, high, TILE: tl.constexpr, SEGMENTS: tl.constexpr,
    READ: tl.constexpr,
):  # fmt: skip
    """A tile of segment low and up to SEGMENTS more: each position takes the shift of the last that begins before it.

    No loop, so that all starts and shifts are asked for at once and no position changes its thread.
    """
    position = first + tl.arange(0, TILE)
    shift = tl.zeros([TILE], tl.int32) + (tl.load(source_offsets + low) - tl.load(starts + low))
    for more in tl.static_range(1, SEGMENTS + 1):
        start = tl.load(starts + low + more, mask=low + more <= high, other=ENDLESS)
        offset = tl.load(source_offsets + low + more, mask=low + more <= high, other=0)
        shift = tl.where(position < start, shift, offset - start)
    real = position < total
    tl.store(
        destination + position, tl.load(source + position + shift, mask=real, eviction_policy=READ), mask=real
    )


@triton.jit
def copy_tile(
    source, source_offsets, starts, destination, first, total, numbers, low, high, TILE: tl.constexpr,
    READ: tl.constexpr, WALKED: tl.constexpr, REALIGN: tl.constexpr,
):  # fmt: skip
    """A tile of segments low to high."""
    FEW: tl.constexpr = min(2, WALKED)
    if (low == high) & (first + TILE <= total):
        lane = tl.arange(0, TILE)
        from_ = first + tl.load(source_offsets + low) - tl.load(starts + low)
        if REALIGN and from_ + TILE + 4 <= numbers:
            tl.store(destination + first + lane, read_run(source, from_, TILE, READ))
        else:
            tl.store(destination + first + lane, tl.load(source + from_ + lane, eviction_policy=READ))
    elif high - low <= FEW:
        copy_walking(source, source_offsets, starts, destination, first, total, low, high, TILE, FEW, READ)
    elif high - low <= WALKED:
        copy_walking(source, source_offsets, starts, destination, first, total, low, high, TILE, WALKED, READ)
    else:
        group = first + tl.arange(0, TILE // GROUP) * GROUP
        place = places(source_offsets, starts, group, low, high)
        position = group[:, None] + tl.arange(0, GROUP)[None, :]
        real = position < total
        tl.store(destination + position, tl.load(source + place, mask=real, eviction_policy=READ), mask=real)


@triton.jit
def copy_tiles(
    source, source_offsets, starts, destination, found, segments, total, numbers, TILE: tl.constexpr,
    SPAN: tl.constexpr, PIVOTS: tl.constexpr, STEPS: tl.constexpr, READ: tl.constexpr, WALKED: tl.constexpr,
    REALIGN: tl.constexpr,
):  # fmt: skip
    """SPAN tiles; without steps of a search one, from found[tile] to found[tile + 1], the first of the next tile."""
    begin = tl.program_id(0) * SPAN * TILE
    if STEPS == 0:
        low, high = tl.load(found + tl.program_id(0)), tl.load(found + tl.program_id(0) + 1)
        copy_tile(
            source, source_offsets, starts, destination, begin, total, numbers, low, high, TILE, READ, WALKED,
            REALIGN,
        )  # fmt: skip
    else:
        high, following = 0, 0
        for first in range(begin, tl.minimum(begin + SPAN * TILE, total), TILE):
            low = high
            if first + TILE > following:
                low, high = segments_at(
                    starts, segments, first, tl.minimum(first + TILE, total) - 1, PIVOTS, STEPS
                )
                following = tl.load(starts + high + 1, mask=high + 1 < segments, other=ENDLESS)
            copy_tile(
                source, source_offsets, starts, destination, first, total, numbers, low, high, TILE, READ, WALKED,
                REALIGN,
            )  # fmt: skip


def search(segments: int) -> tuple[int, int]:
    """(pivots, steps), pivots a power of two and pivots ** steps at least the number of segments."""
    bits, steps = max(1, (segments - 1).bit_length()), 1
    while -(-bits // steps) > (PIVOTS or WIDEST).bit_length() - 1:
        steps += 1
    return max(FEWEST, 1 << -(-bits // steps)), steps


def run(
    source: torch.Tensor,
    source_offsets: torch.Tensor,
    destination_offsets: torch.Tensor,
    lengths: torch.Tensor,
    destination: torch.Tensor,
) -> None:
    """All int32; offsets and lengths of segments, which tile the destination in order; below 2^31 - 2^13 numbers."""
    segments, total, starts = len(lengths), len(destination), destination_offsets
    tile = TILE or NUMBERS
    tiles, (pivots, steps), found = triton.cdiv(total, tile), search(segments), starts
    if AHEAD == "always" or (AHEAD == "shape" and steps > 2):
        pivots, steps, found = 1, 0, torch.empty(tiles + 1, dtype=torch.int32, device=source.device)
        find_tiles[(triton.cdiv(tiles + 1, LANES),)](
            starts, found, segments, total, tiles, tile, LANES, num_warps=LANES // 32
        )  # fmt: skip
    span = (SPAN or (SEARCHED_TILES if steps == 2 else 1)) if steps else 1
    copy_tiles[(triton.cdiv(tiles, span),)](
        source, source_offsets, starts, destination, found, segments, total, len(source), tile, span, pivots, steps,
        "" if READ == "normal" else READ, WALKED, REALIGN, num_warps=WARPS or max(1, tile // (32 * PER_THREAD)),
    )  # fmt: skip
