"""C = A B for Hopper: persistent programs, tiles by TMA, products by wgmma, configured by an estimate of time.

A descriptor of a matrix needs rows that start at multiples of 16 bytes. Where they do not, a large product first copies
the matrix to rows that do (reading and writing it once costs little beside 2 M N K operations), and a small one takes
the plain kernel, as whatever is tiny does. Where there are too few tiles for the GPU, several programs share a tile's k
(split-K) and leave float32 parts, which a second kernel adds up in a fixed order.

Tensor cores sum products of float8 in 14 bits, so that the sum of every MM_CHAIN steps of k starts anew and is added in
float32.
They also want both float8 operands in rows along k; a B that is not transposed is copied into that order.

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
CHAIN = knob("MM_CHAIN")

PROCESSORS = 132
"""Streaming multiprocessors of an H200; PROGRAMS stay on each."""

SHARED = 227 * 1024 // PROGRAMS - 1024
"""Bytes of shared memory for a program's tiles; the rest is for barriers."""

PART = 32 * 1024 >> PROGRAMS - 1
"""Bytes of a tile of C that are on their way through shared memory at a time."""

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

    def stages(self, item: int, target: int) -> int:
        """Steps of k whose tiles of elements of `item` bytes fit the shared memory beside a part of C."""
        fitting = (SHARED - min(PART, self.m * self.n * target)) // (item * (self.m + self.n) * self.k)
        return max(1, min(STAGES or 8, fitting))

    def parts(self, item: int) -> int:
        """Column blocks in which a tile of C of elements of so many bytes is written."""
        return max(1, self.m * self.n * item // PART)


TILES = (
    Tile(128, 256, 64, 8), Tile(256, 128, 64, 8), Tile(128, 128, 64, 8), Tile(256, 64, 64, 8),
    Tile(64, 256, 64, 4), Tile(128, 64, 64, 4), Tile(64, 128, 64, 4), Tile(64, 64, 64, 4),
)  # fmt: skip
SHORT = Tile(16, 128, 64, 4)
"""Of float8 alone, for as few rows: no wgmma, and no 48 rows multiplied for nothing."""

WAYS = range(1, 33)


def nanoseconds(tile: Tile, splits: int, m: int, n: int, k: int, item: int) -> float:
    """What a product should take: whole waves of tiles, limited by tensor cores or by what feeds them, or memory.

    Programs of one multiprocessor share both; most of the multiprocessors are needed to keep the memory busy.
    """
    steps = triton.cdiv(triton.cdiv(k, tile.k), splits)
    places, work = PROCESSORS * PROGRAMS, triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n) * splits
    waves = triton.cdiv(work, places)
    step = max(item * tile.m * tile.n * tile.k / TENSOR, item * (tile.m + tile.n) * tile.k / FILL) + 30
    computing = waves * PROGRAMS * (steps * step + tile.m * tile.n / 50)
    memory = (item * (m * k + k * n) + 2 * m * n) / MEMORY * max(1, 0.92 * waves * places / work)
    return max(computing, memory) + computing / 20 + (2500 + 8 * splits * m * n / MEMORY if splits > 1 else 0)


def plan(m: int, n: int, k: int, item: int) -> tuple[Tile, int]:
    """The tile and the number of splits that should be fastest, or what the knobs say.

    Float8 takes twice the k in the same bytes, and has two accumulators: the largest tiles would leave no registers.
    """
    held = [tile for tile in TILES if tile.m * tile.n <= 2048 * tile.warps] + [SHORT] * (m <= SHORT.m)
    tiles = TILES if item == 2 else [tile._replace(k=128) for tile in held]
    ways = (SPLITS,) if SPLITS else tuple(s for s in WAYS if s == 1 or s * 512 <= k)
    tile, splits = min(pairs(tiles, ways), key=lambda way: nanoseconds(*way, m, n, k, item))
    tile = Tile(*(own or chosen for own, chosen in zip((*BLOCKS, WARPS), tile, strict=True)))
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
    TRANSPOSED: tl.constexpr, CHAIN: tl.constexpr,
):  # fmt: skip
    """Tiles of C, one after the other; a and b are descriptors, c is one too unless it is written DIRECTly.

    With splits > 1, c holds so many matrices. Flattened, the loops are one: the next tile's first loads are under way
    while this one is written. What lies outside A and B arrives as zeros.

    Of float8, CHAIN steps are summed in the tensor cores before the sum is added to those before it. A total that is
    set under a condition alone costs nothing in the steps between.
    """
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), splits)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    part = total
    for item in tl.range(tl.program_id(0), tiles_m * tiles_n * splits, tl.num_programs(0), flatten=True):
        split = item // (tiles_m * tiles_n)
        tile_m, tile_n = place(item % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)
        row, column, first = tile_m * BLOCK_M, tile_n * BLOCK_N, split * steps * BLOCK_K
        if CHAIN < 2:
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(steps):
            k = first + step * BLOCK_K
            left = a.load([row, k])
            right = b.load([column, k]).T if TRANSPOSED else b.load([k, column])
            if CHAIN == 0:
                total = tl.dot(left, right, total)
            elif CHAIN == 1:
                total += tl.dot(left, right)
            else:
                if step % CHAIN == 0:
                    part = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
                part = tl.dot(left, right, part)
                if (step % CHAIN == CHAIN - 1) | (step == steps - 1):
                    if step < CHAIN:
                        total = part
                    else:
                        total += part
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
def turn(x, y, rows, columns, pitch, BLOCK: tl.constexpr):
    """The transpose of x, in rows `pitch` apart."""
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (row < rows) & (column < columns)
    value = tl.load(x + row.to(tl.int64) * columns + column, mask=inside)
    tl.store(y + column.to(tl.int64) * pitch + row, value, mask=inside)


@triton.jit
def plain(
    a, b, c, M, N, K, b_row, b_column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """One tile of C from matrices of any alignment."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    row, column = tl.program_id(0) // tiles_n * BLOCK_M, tl.program_id(0) % tiles_n * BLOCK_N
    rows, columns = (row + tl.arange(0, BLOCK_M))[:, None], (column + tl.arange(0, BLOCK_N))[None, :]
    a_rows, b_columns = a + rows.to(tl.int64) * K, b + columns.to(tl.int64) * b_column
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        inner = first + tl.arange(0, BLOCK_K)
        left = tl.load(a_rows + inner[None, :], mask=(rows < M) & (inner[None, :] < K), other=0.0)
        across = inner[:, None].to(tl.int64) * b_row
        right = tl.load(b_columns + across, mask=(columns < N) & (inner[:, None] < K), other=0.0)
        total += tl.dot(left, right)
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


def turned(x: torch.Tensor, block: tuple[int, int]) -> TensorDescriptor:
    """A descriptor of a copy of x with rows and columns exchanged."""
    rows, columns = x.shape
    pitch = triton.cdiv(rows, 64) * 64
    copy = torch.empty((columns, pitch), dtype=x.dtype, device=x.device)
    turn[(triton.cdiv(rows, 64), triton.cdiv(columns, 64))](x, copy, rows, columns, pitch, 64)
    return TensorDescriptor(copy, [columns, rows], [pitch, 1], list(block))


def form_for(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, transposed: bool) -> Form | None:
    """How specialised warps would make C; None where they would not."""
    can = is_hopper(a.device) and all(map(is_aligned, (a, b, c))) and (transposed or a.element_size() == 2)
    return form_of(a.shape[0], c.shape[1], a.shape[1], a.element_size()) if SPECIALISED and can else None


def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, transposed: bool) -> None:
    """a is M x K, b is K x N or, transposed, N x K; both float16 or float8. c is M x N, float16. All row-major."""
    (m, k), n = a.shape, c.shape[1]
    as_it_is = is_aligned(a) and is_aligned(b) and (transposed or b.element_size() == 2)
    if form := form_for(a, b, c, transposed):
        product(a, b, c, form, group(triton.cdiv(n, form.columns), form.group), turned=transposed)
    elif m * n * k >= (TINY if as_it_is else WORTH_A_COPY):
        run_persistent(a, b, c, transposed)
    else:
        b_row, b_column = (1, k) if transposed else (n, 1)
        side = 32 if m * n * k < TINY else 64
        grid = (triton.cdiv(m, side) * triton.cdiv(n, side),)
        plain[grid](a, b, c, m, n, k, b_row, b_column, side, side, 32, num_warps=4, num_stages=3)


def run_persistent(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, transposed: bool) -> None:
    """Either in one launch or, with splits, in two; each operand that must be copied is one more."""
    (m, k), n, item = a.shape, c.shape[1], a.element_size()
    tile, splits = plan(m, n, k, item)
    pitch, target = triton.cdiv(n, 8) * 8, c
    if splits > 1:
        target = torch.empty((splits, m, pitch), dtype=torch.float32, device=c.device)
    direct, parts = not is_aligned(target), tile.parts(target.element_size())
    pieces = 4 * parts if direct else parts
    rows, columns = triton.cdiv(m, tile.m), triton.cdiv(n, tile.n)
    along_k = transposed or item == 1
    describe = turned if along_k and not transposed else described
    persistent[(min(rows * columns * splits, PROCESSORS * PROGRAMS),)](
        described(a, (tile.m, tile.k)), describe(b, (tile.n, tile.k) if along_k else (tile.k, tile.n)),
        target if direct else described(target, (tile.m, tile.n // parts)),
        m, n, k, splits, tile.m, tile.n, tile.k, group(columns), pieces, direct, EARLY and splits > 1,
        along_k, CHAIN if item == 1 else 0,
        num_warps=tile.warps, num_stages=tile.stages(item, target.element_size()),
    )  # fmt: skip
    if splits > 1:
        early = {"launch_pdl": True} if EARLY else {}
        add_splits[(m, triton.cdiv(n, 1024))](target, c, m, n, pitch, splits, 1024, EARLY, **early)
