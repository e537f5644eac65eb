"""2-D convolution for Hopper, in one of three ways.

packed  Tensor cores want rows of channels, NCHW has rows of pixels. So x is copied to (N, H, W, channels) and w to rows
        of (R, S, channels). A tile of y is then any run of pixels: for each place of the filter every one of them has
        its row of channels in x, copied 16 bytes at a time, with zeros where the place leaves the image.
direct  Where there are few channels, or little to do at all, pixels are gathered one by one from x as it is.
point   A filter of one pixel is a product of matrices in NCHW already: filters x channels by channels x pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from knobs import knob
from triton import next_power_of_2 as power
from triton.tools.tensor_descriptor import TensorDescriptor

BLOCK_P, BLOCK_O, BLOCK_C = (knob(f"CV_BLOCK_{name}") for name in "POC")
WARPS, STAGES, WAY = (knob(f"CV_{name}") for name in ("WARPS", "STAGES", "WAY"))

PROCESSORS = 132
"""Streaming multiprocessors of an H200; one program stays on each."""

SHARED = 227 * 1024 - 1024
"""Bytes of shared memory for tiles; the rest is for barriers."""

PART = 16 * 1024
"""Bytes of a tile of y that are on their way through shared memory at a time."""

TENSOR, FILL, COPY, GATHER, START = 6000.0, 65.0, 3500.0, 950.0, 4000.0
"""Expected: FLOP a nanosecond of one multiprocessor, bytes it is handed by the L2, bytes all copy from memory to memory
in another order, elements all gather one by one; nanoseconds until a program that stands alone has its first tiles."""


class Sizes(NamedTuple):
    """Of a convolution; channels and filters are those of one group, p and q the height and width of y."""

    images: int
    groups: int
    channels: int
    filters: int
    h: int
    w: int
    r: int
    s: int
    p: int
    q: int
    stride_h: int
    stride_w: int
    padding_h: int
    padding_w: int

    @property
    def pixels(self) -> int:
        """Of y."""
        return self.images * self.p * self.q

    @property
    def depth(self) -> int:
        """Products that make an element of y."""
        return self.channels * self.r * self.s

    @property
    def pitch(self) -> int:
        """Channels of a group in a packed row: a multiple of 64, or a smaller power of two; steps divide it."""
        return triton.cdiv(self.channels, 64) * 64 if self.channels > 32 else max(16, power(self.channels))

    def merged(self) -> Sizes:
        """With groups taken as one, as many as fill a step; each filter is zero for the channels of the others."""
        fitting = [n for n in range(1, self.groups + 1) if self.groups % n == 0 and n * self.channels <= 64]
        n = max(fitting, default=1)
        return self._replace(groups=self.groups // n, channels=self.channels * n, filters=self.filters * n)


class Tile(NamedTuple):
    """A tile of y: pixels, filters, products a step."""

    p: int
    o: int
    k: int
    warps: int

    def room(self, programs: int) -> int:
        """Steps whose tiles fit the shared memory, beside a part of y, of so many programs."""
        return (SHARED // programs - PART) // (2 * (self.p + self.o) * self.k)

    def stages(self, programs: int, steps: int) -> int:
        """Of so many steps, those loaded ahead: where they are few, loading many before the first product is slower."""
        return max(1, min(STAGES or min(6, max(2, steps // 3)), self.room(programs)))

    @property
    def programs(self) -> int:
        """Programs a multiprocessor holds: one's loads and products hide where another begins and ends."""
        return max(n for n in (1, 2, 3) if n * self.p * self.o <= 1 << 15 and (n == 1 or self.room(n) >= 3))

    @property
    def parts(self) -> int:
        """Blocks of filters in which a tile of y is written."""
        return max(1, 2 * self.p * self.o // PART)


TILES = (
    Tile(128, 256, 64, 8), Tile(128, 128, 64, 8), Tile(256, 64, 64, 8), Tile(64, 256, 64, 4), Tile(128, 64, 64, 4),
    Tile(64, 128, 64, 4), Tile(64, 64, 64, 4), Tile(128, 32, 64, 4), Tile(64, 32, 64, 4), Tile(128, 16, 64, 4),
)  # fmt: skip


def nanoseconds(tile: Tile, rows: int, columns: int, depth: int, times: int) -> float:
    """What `times` products of rows x depth by depth x columns should take: whole waves of tiles."""
    steps = triton.cdiv(depth, tile.k)
    tiles = triton.cdiv(rows, tile.p) * triton.cdiv(columns, tile.o) * times
    step = max(2 * tile.p * tile.o * tile.k / TENSOR, 2 * (tile.p + tile.o) * tile.k / FILL) + 30
    waves = triton.cdiv(tiles, PROCESSORS * tile.programs)
    return waves * (tile.programs * (steps * step + tile.p * tile.o / 50) + START / tile.programs)


def plan(rows: int, columns: int, depth: int, times: int) -> Tile:
    """The tile that should be fastest, or what the knobs say."""
    tile = min(TILES, key=lambda tile: nanoseconds(tile, rows, columns, depth, times))
    knobs = (BLOCK_P, BLOCK_O, BLOCK_C, WARPS)
    return Tile(*(own or chosen for own, chosen in zip(knobs, tile, strict=True)))


def should_pack(z: Sizes) -> bool:
    """Whether copying x costs less than gathering its elements one by one."""
    if WAY != "auto":
        return WAY == "packed"
    merged = z.merged()
    depth = merged.pitch * z.r * z.s
    tile = plan(z.pixels, merged.filters, depth, merged.groups)
    elements = z.images * z.h * z.w * (z.groups * z.channels + merged.groups * merged.pitch)
    packed = 5000 + 2 * elements / COPY + nanoseconds(tile, z.pixels, merged.filters, depth, merged.groups)
    tile = plan(z.pixels, z.filters, z.depth, z.groups)
    gathered = z.groups * z.pixels * z.depth * triton.cdiv(z.filters, tile.o)
    return packed < gathered / GATHER + nanoseconds(tile, z.pixels, z.filters, z.depth, z.groups)


@triton.jit
def pack_image(
    x, packed, tile, GROUPS, C, SIZE: tl.constexpr, PITCH: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """BLOCK_Q pixels of an image by BLOCK_C channels, zeros where x has none; turned on the way.

    SIZE pixels are an image; that it is constant lets as many be loaded in a word as divide it.
    """
    tiles_q, tiles_c = tl.cdiv(SIZE, BLOCK_Q), tl.cdiv(GROUPS * PITCH, BLOCK_C)
    image = (tile // (tiles_q * tiles_c)).to(tl.int64)
    channel = tile // tiles_q % tiles_c * BLOCK_C + tl.arange(0, BLOCK_C)
    pixel = tile % tiles_q * BLOCK_Q + tl.arange(0, BLOCK_Q)
    group, c = channel // PITCH, channel % PITCH
    real = ((c < C) & (group < GROUPS))[:, None] & (pixel < SIZE)[None, :]
    at = x + ((image * GROUPS + group) * C + c)[:, None] * SIZE + pixel[None, :]
    value = tl.load(at, mask=real, other=0.0)
    to = packed + (image * SIZE + pixel)[:, None] * (GROUPS * PITCH) + channel[None, :]
    inside = (pixel < SIZE)[:, None] & (channel < GROUPS * PITCH)[None, :]
    tl.store(to, tl.trans(value), mask=inside)


@triton.jit
def pack_filter(w, packed, number, C, F, MERGED_F, RS, row, PITCH: tl.constexpr, BLOCK: tl.constexpr):
    """One filter from (C, R, S) to (R, S, PITCH), zeros where it has no channel: of the F filters of each group that
    MERGED_F come from, every one has its own group's channels behind those of the groups before."""
    skipped = number % MERGED_F // F * C
    for start in range(0, row, BLOCK):
        k = start + tl.arange(0, BLOCK)
        c, rs = k % PITCH - skipped, k // PITCH
        value = tl.load(
            w + number.to(tl.int64) * C * RS + c * RS + rs, mask=(c >= 0) & (c < C) & (k < row), other=0.0
        )
        tl.store(packed + number.to(tl.int64) * row + k, value, mask=k < row)


@triton.jit
def pack(
    x, w, packed_x, packed_w, GROUPS, C, SIZE: tl.constexpr, filters, FILTER_C, F, MERGED_F, RS, row,
    PITCH: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The first programs take a filter each, the others a tile of an image."""
    program = tl.program_id(0)
    if program < filters:
        pack_filter(w, packed_w, program, FILTER_C, F, MERGED_F, RS, row, PITCH, 512)
    else:
        pack_image(x, packed_x, program - filters, GROUPS, C, SIZE, PITCH, BLOCK_Q, BLOCK_C)


@triton.jit
def store_pixels(at, inside, total, F, image_size, PARTS: tl.constexpr):
    """Write a tile of pixels by filters, halved along the filters; F of them are left, and `at` is where the first
    one's pixels are in y. There pixels lie next to each other, so the tile is turned."""
    WIDTH: tl.constexpr = total.shape[1] // 2
    if PARTS > 1:
        left, right = tl.split(tl.permute(tl.reshape(total, (total.shape[0], 2, WIDTH)), (0, 2, 1)))
        store_pixels(at, inside, left, F, image_size, PARTS // 2)
        store_pixels(at + WIDTH * image_size, inside, right, F - WIDTH, image_size, PARTS // 2)
    else:
        number = tl.arange(0, total.shape[1])[:, None]
        tl.store(
            at[None, :] + number * image_size,
            tl.trans(total.to(tl.float16)),
            mask=inside[None, :] & (number < F),
        )


@triton.jit
def gathered(
    x, w, y, pixels, groups, F, H, W, padding_h, padding_w, Q: tl.constexpr, SIZE: tl.constexpr,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, PITCH: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A tile of y: BLOCK_P of all images' pixels in a row by BLOCK_O filters; w is a descriptor of the packed w.

    A pixel's channels lie in a row of the packed x, so each thread copies 16 bytes at a time, zeros where the filter
    leaves the image. SIZE pixels are an image of y; that it is constant lets y be written in words as long.
    """
    tile, tiles_o = tl.program_id(0), tl.cdiv(F, BLOCK_O)
    out, group = tile % tiles_o * BLOCK_O, tile // tiles_o % groups
    pixel = tile // (tiles_o * groups) * BLOCK_P + tl.arange(0, BLOCK_P)
    image, inside = pixel // SIZE, pixel < pixels
    top = tl.where(inside, pixel % SIZE // Q * STRIDE_H - padding_h, -R)
    left = pixel % Q * STRIDE_W - padding_w
    start = x + ((image * H + top) * W + left).to(tl.int64) * (groups * PITCH) + group * PITCH
    total = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
    for step in range(R * S * (PITCH // BLOCK_K)):
        place, channel = step // (PITCH // BLOCK_K), step % (PITCH // BLOCK_K) * BLOCK_K
        r, s = place // S, place % S
        seen = (top + r >= 0) & (top + r < H) & (left + s >= 0) & (left + s < W)
        at = start + ((r * W + s) * (groups * PITCH) + channel)
        seen_x = tl.load(at[:, None] + tl.arange(0, BLOCK_K)[None, :], mask=seen[:, None], other=0.0)
        taken_w = w.load([group * F + out, step * BLOCK_K])
        total = tl.dot(seen_x, taken_w.T, total)
    at = y + ((image.to(tl.int64) * groups + group) * F + out) * SIZE + pixel % SIZE
    if SIZE % 2 == 1:
        at = tl.max_contiguous(
            at, 2
        )  # else a warp writes to 32 filters' planes; an odd stride stays unaligned
    store_pixels(at, inside, total, F - out, SIZE, PARTS)


@triton.jit
def direct(
    x, w, y, pixels, C, H, W, F, P, Q, stride_h, stride_w, padding_h, padding_w, groups, depth,
    R: tl.constexpr, S: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of y from x as it is, in steps over (channel, row, column) of the filter, the order w is in."""
    tiles_o = tl.cdiv(F, BLOCK_O)
    out, group = tl.program_id(0) % tiles_o * BLOCK_O, tl.program_id(0) // tiles_o % groups
    first = tl.program_id(0) // (tiles_o * groups) * BLOCK_P
    pixel = first + tl.arange(0, BLOCK_P)
    image, top, left = (
        pixel // (P * Q),
        pixel // Q % P * stride_h - padding_h,
        pixel % Q * stride_w - padding_w,
    )
    start = x + (image.to(tl.int64) * groups + group) * C * H * W + top * W + left
    filter_ = out + tl.arange(0, BLOCK_O)
    w_row = w + (group * F + filter_).to(tl.int64) * depth
    total = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
    for step in range(0, depth, BLOCK_K):
        k = step + tl.arange(0, BLOCK_K)
        r, s = k // S % R, k % S
        h, v = top[:, None] + r[None, :], left[:, None] + s[None, :]
        seen = (h >= 0) & (h < H) & (v >= 0) & (v < W) & (k < depth)[None, :] & (pixel < pixels)[:, None]
        shift = k // (R * S) * (H * W) + r * W + s
        x_tile = tl.load(start[:, None] + shift[None, :], mask=seen, other=0.0)
        w_tile = tl.load(
            w_row[None, :] + k[:, None], mask=(k < depth)[:, None] & (filter_ < F)[None, :], other=0.0
        )
        total = tl.dot(x_tile, w_tile, total)
    at = y + ((image.to(tl.int64) * groups + group) * F + out) * (P * Q) + pixel % (P * Q)
    store_pixels(at, pixel < pixels, total, F - out, P * Q, 1)


@triton.jit
def point(
    w, x, y, images, F, size, C,
    BLOCK_F: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Tiles of y as w by x, an image at a time; all three are descriptors, x and y of (image, row, pixel)."""
    tiles_f, tiles_p = tl.cdiv(F, BLOCK_F), tl.cdiv(size, BLOCK_P)
    for tile in tl.range(tl.program_id(0), images * tiles_f * tiles_p, tl.num_programs(0), flatten=True):
        row, first = tile % tiles_f * BLOCK_F, tile // tiles_f % tiles_p * BLOCK_P
        image = tile // (tiles_f * tiles_p)
        total = tl.zeros((BLOCK_F, BLOCK_P), tl.float32)
        for step in range(tl.cdiv(C, BLOCK_K)):
            left = w.load([row, step * BLOCK_K])
            right = x.load([image, step * BLOCK_K, first]).reshape(BLOCK_K, BLOCK_P)
            total = tl.dot(left, right, total)
        store_matrix(y, image, row, first, total, PARTS)


@triton.jit
def store_matrix(y, image, row, column, total, PARTS: tl.constexpr):
    """Write a tile of one image through a descriptor, halved until a part is small enough."""
    HEIGHT: tl.constexpr = total.shape[0]
    WIDTH: tl.constexpr = total.shape[1] // 2
    if PARTS > 1:
        left, right = tl.split(tl.permute(tl.reshape(total, (HEIGHT, 2, WIDTH)), (0, 2, 1)))
        store_matrix(y, image, row, column, left, PARTS // 2)
        store_matrix(y, image, row, column + WIDTH, right, PARTS // 2)
    else:
        y.store([image, row, column], total.to(tl.float16).reshape(1, HEIGHT, 2 * WIDTH))


def run(
    x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, *,
    stride_h: int, stride_w: int, padding_h: int, padding_w: int, groups: int,
) -> None:  # fmt: skip
    """x is N x C x H x W, w is F x C/groups x R x S, y is N x F x P x Q; contiguous float16."""
    (filters, channels, r, s), (images, _, p, q) = w.shape, y.shape
    h, width = x.shape[2:]
    z = Sizes(
        images,
        groups,
        channels,
        filters // groups,
        h,
        width,
        r,
        s,
        p,
        q,
        stride_h,
        stride_w,
        padding_h,
        padding_w,
    )
    is_point = (r, s, stride_h, stride_w, padding_h, padding_w, groups) == (1, 1, 1, 1, 0, 0, 1)
    if is_point and channels % 8 == 0 and p * q % 8 == 0:
        run_point(x, w, y, z)
    elif should_pack(z):
        run_packed(x, w, y, z)
    else:
        run_direct(x, w, y, z)


def run_point(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, z: Sizes) -> None:
    """One launch; the rows of the product are filters, its columns pixels."""
    size = z.p * z.q
    tile = plan(z.filters, size, z.channels, z.images)
    x_shape, y_shape = [z.images, z.channels, size], [z.images, z.filters, size]
    point[(min(PROCESSORS, z.images * triton.cdiv(z.filters, tile.p) * triton.cdiv(size, tile.o)),)](
        TensorDescriptor(w, [z.filters, z.channels], [z.channels, 1], [tile.p, tile.k]),
        TensorDescriptor(x, x_shape, [z.channels * size, size, 1], [1, tile.k, tile.o]),
        TensorDescriptor(y, y_shape, [z.filters * size, size, 1], [1, tile.p, tile.o // tile.parts]),
        z.images, z.filters, size, z.channels, tile.p, tile.o, tile.k, tile.parts,
        num_warps=tile.warps, num_stages=tile.stages(1, triton.cdiv(z.channels, tile.k)),
    )  # fmt: skip


def run_packed(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, z: Sizes) -> None:
    """Two launches: both copies, then the product."""
    m, size = z.merged(), z.h * z.w
    row, filters, channels = z.r * z.s * m.pitch, m.groups * m.filters, m.groups * m.pitch
    tile = plan(z.pixels, m.filters, row, m.groups)
    tile = tile._replace(k=min(tile.k, m.pitch, 64))
    packed_x = torch.empty((z.images, size, channels), dtype=x.dtype, device=x.device)
    packed_w = torch.empty((filters, row), dtype=w.dtype, device=w.device)
    block = min(64, power(channels))
    tiles = z.images * triton.cdiv(size, 64) * triton.cdiv(channels, block)
    pack[(filters + tiles,)](
        x, w, packed_x, packed_w, m.groups, m.channels, size, filters, z.channels, z.filters, m.filters, z.r * z.s, row,
        m.pitch, 64, block, num_warps=4,
    )  # fmt: skip
    gathered[(triton.cdiv(z.pixels, tile.p) * m.groups * triton.cdiv(m.filters, tile.o),)](
        packed_x, TensorDescriptor(packed_w, [filters, row], [row, 1], [tile.o, tile.k]), y, z.pixels,
        m.groups, m.filters, z.h, z.w, z.padding_h, z.padding_w, z.q, z.p * z.q, z.r, z.s, z.stride_h, z.stride_w,
        m.pitch, tile.p, tile.o, tile.k, tile.parts,
        num_warps=tile.warps, num_stages=tile.stages(tile.programs, row // tile.k),
    )  # fmt: skip


def run_direct(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, z: Sizes) -> None:
    """One launch; few filters take a narrow tile."""
    out = BLOCK_O or min(64, max(16, power(z.filters)))
    pixels, step = BLOCK_P or 64, BLOCK_C or 32
    grid = (triton.cdiv(z.pixels, pixels) * triton.cdiv(z.filters, out) * z.groups,)
    direct[grid](
        x, w, y, z.pixels, z.channels, z.h, z.w, z.filters, z.p, z.q, z.stride_h, z.stride_w,
        z.padding_h, z.padding_w, z.groups, z.depth, z.r, z.s, pixels, out, step,
        num_warps=WARPS or 4, num_stages=STAGES or 3,
    )  # fmt: skip
