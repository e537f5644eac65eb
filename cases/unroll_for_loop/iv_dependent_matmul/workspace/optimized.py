"""C = A B for Hopper: persistent programs, tiles by TMA, products by wgmma, configured by an estimate of time.

A descriptor of a matrix needs rows that start at multiples of 16 bytes. Where they do not, a large product first copies
the matrix to rows that do (reading and writing it once costs little beside 2 M N K operations), and a small one takes
the plain kernel, as whatever is tiny does. Where there are too few tiles for the GPU, several programs share a tile's k
(split-K) and leave float32 parts, which a second kernel adds up in a fixed order.

A step's place in A and B is a pair of coordinates made of the induction variable. That leaves nothing to schedule by
hand: the copy engine takes the coordinates when it is told to load, as many steps ahead as the shared memory has room.

On Hopper, aligned products whose tiles fill the GPU are made by the specialised warps of warps.py instead.
"""

from __future__ import annotations

from itertools import product as pairs
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from knobs import knob
from triton.tools.tensor_descriptor import TensorDescriptor
from warps import Form, form_of, is_hopper, product

BLOCKS = tuple(knob(f"MM_BLOCK_{name}") for name in "MNK")
WARPS, STAGES, SPLITS = (knob(f"MM_{name}") for name in ("WARPS", "STAGES", "SPLITS"))
GROUP, PROGRAMS, EARLY = (knob(f"MM_{name}") for name in ("GROUP", "PROGRAMS", "EARLY"))
SPECIALISED = knob("MM_SPECIALISED")

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

SHARED, BARRIERS = 227 * 1024, 1024
"""Bytes of shared memory of a multiprocessor, and what a program needs of it besides tiles."""

PART = 32 * 1024
"""Bytes of a tile of C that are on their way through shared memory at a time, where a program has it for itself."""

TINY, WORTH_A_COPY = 1 << 20, 1 << 29
"""Multiply-adds below which a pipeline takes longer to fill than the plain kernel to end, and from which copying an
unaligned matrix is cheaper than reading it element by element."""

TENSOR, FILL, MEMORY = 6000.0, 70.0, 4290.0
"""Expected: FLOP a nanosecond of one multiprocessor, bytes it is handed by the L2, bytes all get from memory."""


class Tile(NamedTuple):
    """A tile of C and how it is made."""

    m: int
    n: int
    k: int
    warps: int
    programs: int = 1
    """That stay on a multiprocessor and share it."""

    @property
    def part(self) -> int:
        """Bytes of a tile of C that are on their way at a time."""
        return PART >> self.programs - 1

    def stages(self, item: int) -> int:
        """Steps of k whose tiles fit the shared memory beside a part of C."""
        room = SHARED // self.programs - BARRIERS - min(self.part, self.m * self.n * item)
        fitting = room // (2 * (self.m + self.n) * self.k)
        return max(1, min(STAGES or 8, fitting))

    def parts(self, item: int) -> int:
        """Column blocks in which a tile of C of elements of so many bytes is written."""
        return max(1, self.m * self.n * item // self.part)


TILES = (
    Tile(128, 256, 64, 8), Tile(256, 128, 64, 8), Tile(128, 128, 64, 8), Tile(256, 64, 64, 8),
    Tile(64, 256, 64, 4), Tile(128, 64, 64, 4), Tile(64, 128, 64, 4), Tile(64, 64, 64, 4),
)  # fmt: skip
SHORT = Tile(16, 128, 64, 4, 3)
"""For as few rows: no wgmma, and no 48 rows multiplied for nothing."""

WAYS = range(1, 33)


def nanoseconds(tile: Tile, splits: int, m: int, n: int, k: int) -> float:
    """What a product should take: whole waves of tiles, limited by tensor cores or by what feeds them, or memory.

    Programs of one multiprocessor share both; most of the multiprocessors are needed to keep the memory busy.
    """
    steps = triton.cdiv(triton.cdiv(k, tile.k), splits)
    places, work = PROCESSORS * tile.programs, triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n) * splits
    waves = triton.cdiv(work, places)
    step = max(2 * tile.m * tile.n * tile.k / TENSOR, 2 * (tile.m + tile.n) * tile.k / FILL) + 30
    computing = waves * tile.programs * (steps * step + tile.m * tile.n / 50)
    memory = (2 * (m * k + k * n) + 2 * m * n) / MEMORY * max(1, 0.92 * waves * places / work)
    return max(computing, memory) + computing / 20 + (2500 + 8 * splits * m * n / MEMORY if splits > 1 else 0)


def plan(m: int, n: int, k: int) -> tuple[Tile, int]:
    """The tile and the number of splits that should be fastest, or what the knobs say."""
    ways = (SPLITS,) if SPLITS else tuple(s for s in WAYS if s == 1 or s * 512 <= k)
    fitting = [SHORT] * (m <= SHORT.m) + list(TILES)
    tiles = [tile._replace(programs=PROGRAMS or tile.programs) for tile in fitting]
    tile, splits = min(pairs(tiles, ways), key=lambda way: nanoseconds(*way, m, n, k))
    tile = Tile(*(own or chosen for own, chosen in zip((*BLOCKS, WARPS, PROGRAMS), tile, strict=True)))
    return tile, min(splits, triton.cdiv(k, tile.k))


def group(columns: int, most: int = 8) -> int:
    """Rows of tiles that are gone through together: one where it has few tiles."""
    return GROUP or (1 if columns <= 4 else most)


@triton.jit
def place(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile: GROUP rows of tiles are gone through column by column, so that both operands of the
    programs at work together stay in the L2."""
    group = tile // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP, GROUP)
    within = tile % (GROUP * tiles_n)
    return group * GROUP + within % height, within // height


@triton.jit
def store_inside(c, row, column, total, M, N):
    """Write a tile element by element, as far as it lies in the matrix."""
    rows = (row + tl.arange(0, total.shape[0]))[:, None]
    columns = (column + tl.arange(0, total.shape[1]))[None, :]
    inside = (rows < M) & (columns < N)
    tl.store(c + rows.to(tl.int64) * N + columns, total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def store_parts(c, split, row, column, total, M, N, PARTS: tl.constexpr, DIRECT: tl.constexpr):
    """Write a tile, halved until a part fits what shared memory and registers are left."""
    if PARTS > 1:
        WIDTH: tl.constexpr = total.shape[1] // 2
        halves = tl.permute(tl.reshape(total, (total.shape[0], 2, WIDTH)), (0, 2, 1))
        left, right = tl.split(halves)
        store_parts(c, split, row, column, left, M, N, PARTS // 2, DIRECT)
        store_parts(c, split, row, column + WIDTH, right, M, N, PARTS // 2, DIRECT)
    elif DIRECT:
        store_inside(c, row, column, total, M, N)
    elif len(c.shape) == 3:
        c.store([split, row, column], total.to(c.dtype).reshape(1, total.shape[0], total.shape[1]))
    else:
        c.store([row, column], total.to(c.dtype))


@triton.jit
def persistent(
    a, b, c, M, N, K, splits, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, PARTS: tl.constexpr, DIRECT: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Tiles of C, one after the other; a and b are descriptors, c is one too unless it is written DIRECTly.

    With splits > 1, c holds so many matrices. Flattened, the loops are one: the next tile's first loads are under way
    while this one is written. What lies outside A and B arrives as zeros.
    """
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), splits)
    for item in tl.range(tl.program_id(0), tiles_m * tiles_n * splits, tl.num_programs(0), flatten=True):
        split = item // (tiles_m * tiles_n)
        tile_m, tile_n = place(item % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)
        row, column, first = tile_m * BLOCK_M, tile_n * BLOCK_N, split * steps * BLOCK_K
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(steps):
            left = a.load([row, first + step * BLOCK_K])
            right = b.load([first + step * BLOCK_K, column])
            total = tl.dot(left, right, total)
        store_parts(c, split, row, column, total, M, N, PARTS, DIRECT)


@triton.jit
def add_splits(
    parts, c, M, N, pitch, SPLITS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr
):  # fmt: skip
    """C as the sum of SPLITS float32 matrices of M rows, `pitch` elements apart.

    Launched EARLY, while the other kernel is at work, it waits for that one's end.
    """
    if EARLY:
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(parts + (split * M + row) * pitch + column, mask=column < N, other=0.0)
    tl.store(c + row * N + column, total.to(c.dtype.element_ty), mask=column < N)


@triton.jit
def copy_rows(x, y, columns, pitch, BLOCK: tl.constexpr):
    """Rows of `columns` elements to rows `pitch` apart; what is between them is never read."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        y + row * pitch + column,
        tl.load(x + row * columns + column, mask=column < columns),
        mask=column < columns,
    )


@triton.jit
def plain(
    a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """One tile of C from matrices of any alignment."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    row, column = tl.program_id(0) // tiles_n * BLOCK_M, tl.program_id(0) % tiles_n * BLOCK_N
    rows, columns = (row + tl.arange(0, BLOCK_M))[:, None], (column + tl.arange(0, BLOCK_N))[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        inner = first + tl.arange(0, BLOCK_K)
        left = tl.load(
            a + rows.to(tl.int64) * K + inner[None, :], mask=(rows < M) & (inner[None, :] < K), other=0.0
        )
        right = tl.load(
            b + inner[:, None].to(tl.int64) * N + columns,
            mask=(columns < N) & (inner[:, None] < K),
            other=0.0,
        )
        total = tl.dot(left, right, total)
    store_inside(c, row, column, total, M, N)


def is_aligned(x: torch.Tensor) -> bool:
    """Whether TMA can read and write it: base and rows at multiples of 16 bytes."""
    return x.data_ptr() % 16 == 0 and x.shape[-1] * x.element_size() % 16 == 0


def described(x: torch.Tensor, block: tuple[int, int]) -> TensorDescriptor:
    """A descriptor of x, a matrix or several, or of a matrix's copy with aligned rows."""
    if is_aligned(x):
        return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, *block][-x.ndim :])
    rows, columns = x.shape
    pitch = triton.cdiv(columns, 64) * 64
    copy = torch.empty((rows, pitch), dtype=x.dtype, device=x.device)
    copy_rows[(rows, triton.cdiv(columns, 1024))](x, copy, columns, pitch, 1024)
    return TensorDescriptor(copy, [rows, columns], [pitch, 1], list(block))


def form_for(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Form | None:
    """How specialised warps would make C; None where they would not."""
    can = is_hopper(a.device) and all(map(is_aligned, (a, b, c)))
    return form_of(a.shape[0], c.shape[1], a.shape[1], a.element_size()) if SPECIALISED and can else None


def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """a is M x K, b is K x N, c is M x N; float16, row-major."""
    (m, k), n = a.shape, b.shape[1]
    if form := form_for(a, b, c):
        product(a, b, c, form, group(triton.cdiv(n, form.columns), form.group))
    elif m * n * k >= (TINY if is_aligned(a) and is_aligned(b) else WORTH_A_COPY):
        run_persistent(a, b, c)
    else:
        side = 32 if m * n * k < TINY else 64
        grid = (triton.cdiv(m, side) * triton.cdiv(n, side),)
        plain[grid](a, b, c, m, n, k, side, side, 64, num_warps=4, num_stages=3)


def run_persistent(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Either in one launch or, with splits, in two; each unaligned operand is one more."""
    (m, k), n = a.shape, b.shape[1]
    tile, splits = plan(m, n, k)
    pitch, target = triton.cdiv(n, 8) * 8, c
    if splits > 1:
        target = torch.empty((splits, m, pitch), dtype=torch.float32, device=c.device)
    early = splits > 1 and a.device.type != "cpu" and (EARLY or tile.programs > 1)
    direct, parts = not is_aligned(target), tile.parts(target.element_size())
    pieces = 4 * parts if direct else parts
    rows, columns = triton.cdiv(m, tile.m), triton.cdiv(n, tile.n)
    persistent[(min(rows * columns * splits, PROCESSORS * tile.programs),)](
        described(a, (tile.m, tile.k)), described(b, (tile.k, tile.n)),
        target if direct else described(target, (tile.m, tile.n // parts)),
        m, n, k, splits, tile.m, tile.n, tile.k, group(columns), pieces, direct, early,
        num_warps=tile.warps, num_stages=tile.stages(target.element_size()),
    )  # fmt: skip
    if splits > 1:
        launch = {"launch_pdl": True} if early else {}
        add_splits[(m, triton.cdiv(n, 1024))](target, c, m, n, pitch, splits, 1024, early, **launch)
