"""C = A B for Hopper by warps of two kinds: one loads tiles, groups of four multiply 64 rows of each and never meet.

In Triton's own pipeline the same warps load, wait and multiply. Here, in Gluon, a ring of stages is filled whenever a
stage is free, also while a tile of C is on its way out. Gluon has no interpreter, so this is for a GPU alone.

Tensor cores sum products of float8 in 14 bits: the sum of every CHAIN steps of k starts anew and is added in float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

try:
    from triton.experimental.gluon.language.nvidia.hopper.tma import async_load, async_store
except ImportError:  # their names up to Triton 3.6
    from triton.experimental.gluon.language.nvidia.hopper.tma import async_copy_global_to_shared as async_load
    from triton.experimental.gluon.language.nvidia.hopper.tma import (
        async_copy_shared_to_global as async_store,
    )

PROCESSORS = 132
"""Streaming multiprocessors of an H200."""

ROWS = 64
"""Of a tile that a group of four warps multiplies, which is what one instruction takes."""

FULL = 0.85
"""Share of all multiprocessors' time that must go to elements of C; with less, smaller tiles or splits are faster."""

LEAST_DEPTH = 2048
"""Of k, for a tile to be worth its way in and out."""

DEEP = 16384
"""Of k, from which two groups sum float8 two steps at a time."""

DTYPES = {
    torch.float16: gl.float16,
    torch.bfloat16: gl.bfloat16,
    torch.float8_e4m3fn: gl.float8e4nv,
}


class Form(NamedTuple):
    """How tiles are made: `groups` of ROWS rows by `columns`, `k` a step, and what a kernel needs for that."""

    groups: int
    columns: int
    k: int
    stages: int
    out: int
    """Columns of a tile that are on their way to C at a time."""
    registers: int
    group: int
    """Rows of tiles that are gone through together."""
    rate: float
    """Relative, with all multiprocessors at work."""

    def share(self, m: int, n: int) -> float:
        """Of the multiprocessors' time that goes to elements of C."""
        tiles = triton.cdiv(m, ROWS * self.groups) * triton.cdiv(n, self.columns)
        waves = triton.cdiv(tiles, PROCESSORS)
        return m * n / (waves * PROCESSORS * ROWS * self.groups * self.columns)


FORMS = {
    2: (Form(2, 256, 64, 4, 128, 240, 16, 1.0),),
    1: (Form(3, 128, 128, 5, 64, 160, 8, 1.0), Form(2, 128, 128, 6, 128, 240, 8, 0.95)),
}
"""By the bytes of an element."""


@gluon.jit
def place(tile, tiles_m, tiles_n, GROUP: gl.constexpr):
    """Row and column of a tile: GROUP rows of tiles are gone through column by column, so that both operands of the
    programs at work together stay in the L2."""
    group = tile // (GROUP * tiles_n)
    height = gl.minimum(tiles_m - group * GROUP, GROUP)
    within = tile % (GROUP * tiles_n)
    return group * GROUP + within % height, within // height


@gluon.jit
def load_tiles(
    a, b, lefts, rights, ready, free, tiles_m, tiles_n, steps, GROUP: gl.constexpr, TURNED: gl.constexpr
):  # fmt: skip
    """Fill the ring, a stage as soon as all groups have left it; b is N x K where it is TURNED."""
    STAGES: gl.constexpr = ready.shape[0]
    GROUPS: gl.constexpr = lefts.shape[0] // STAGES
    HEIGHT: gl.constexpr = lefts.shape[1]
    K: gl.constexpr = lefts.shape[2]
    COLUMNS: gl.constexpr = rights.shape[1] if TURNED else rights.shape[2]
    BYTES: gl.constexpr = (GROUPS * HEIGHT + COLUMNS) * K * a.dtype.primitive_bitwidth // 8
    stage = 0
    phase = 1
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = place(tile, tiles_m, tiles_n, GROUP)
        column = tile_n * COLUMNS
        for step in range(steps):
            k = step * K
            mbarrier.wait(free.index(stage), phase)
            mbarrier.expect(ready.index(stage), BYTES)
            for group in gl.static_range(GROUPS):
                row = (tile_m * GROUPS + group) * HEIGHT
                async_load(a, [row, k], ready.index(stage), lefts.index(stage * GROUPS + group))
            if TURNED:
                async_load(b, [column, k], ready.index(stage), rights.index(stage))
            else:
                async_load(b, [k, column], ready.index(stage), rights.index(stage))
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1


@gluon.jit
def write(c, out, row, column, value):
    tma.store_wait(0)
    out.store(value.to(c.dtype))
    fence_async_shared()
    async_store(c, [row, column], out)


@gluon.jit
def write_parts(c, out, row, column, value):
    """Write a tile, halved until a part fits its way out."""
    if value.shape[1] == out.shape[1]:
        write(c, out, row, column, value)
    else:
        WIDTH: gl.constexpr = value.shape[1] // 2
        left, right = gl.split(gl.permute(gl.reshape(value, (value.shape[0], 2, WIDTH)), (0, 2, 1)))
        write_parts(c, out, row, column, left)
        write_parts(c, out, row, column + WIDTH, right)


@gluon.jit
def chained(lefts, rights, ready, free, stage, phase, zeros, own, GROUPS: gl.constexpr, CHAIN: gl.constexpr):
    """The sum of CHAIN steps' products, as the tensor cores make it."""
    part = zeros
    for link in gl.static_range(CHAIN):
        mbarrier.wait(ready.index(stage + link), phase)
        left = lefts.index((stage + link) * GROUPS + own)
        right = rights.index(stage + link).permute((1, 0))
        part = warpgroup_mma(left, right, part, use_acc=link > 0, is_async=True)
        if link > 0:
            part = warpgroup_mma_wait(1, (part,))
            mbarrier.arrive(free.index(stage + link - 1))
    part = warpgroup_mma_wait(0, (part,))
    mbarrier.arrive(free.index(stage + CHAIN - 1))
    return part


@gluon.jit
def multiply(
    c, lefts, rights, outs, ready, free, tiles_m, tiles_n, steps, slope, GROUP: gl.constexpr, TURNED: gl.constexpr,
    CHAIN: gl.constexpr, own: gl.constexpr,
):  # fmt: skip
    """This group's rows of each tile; what is negative is written times the slope, where one is given."""
    STAGES: gl.constexpr = ready.shape[0]
    GROUPS: gl.constexpr = lefts.shape[0] // STAGES
    HEIGHT: gl.constexpr = lefts.shape[1]
    COLUMNS: gl.constexpr = rights.shape[1] if TURNED else rights.shape[2]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [4, 1], [16, COLUMNS, 256 // lefts.dtype.primitive_bitwidth]
    )
    zeros = gl.zeros((HEIGHT, COLUMNS), gl.float32, LAYOUT)
    stage = 0
    phase = 0
    out = outs.index(own)
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = place(tile, tiles_m, tiles_n, GROUP)
        total = zeros
        if CHAIN == 0:
            for _ in range(steps):
                mbarrier.wait(ready.index(stage), phase)
                right = rights.index(stage).permute((1, 0)) if TURNED else rights.index(stage)
                total = warpgroup_mma(lefts.index(stage * GROUPS + own), right, total, is_async=True)
                total = warpgroup_mma_wait(0, (total,))
                mbarrier.arrive(free.index(stage))
                stage += 1
                if stage == STAGES:
                    stage = 0
                    phase ^= 1
        else:
            for _ in range(0, steps, CHAIN):
                total += chained(lefts, rights, ready, free, stage, phase, zeros, own, GROUPS, CHAIN)
                stage += CHAIN
                if stage == STAGES:
                    stage = 0
                    phase ^= 1
        if slope is not None:
            total = gl.where(total < 0, total * slope, total)
        write_parts(c, out, (tile_m * GROUPS + own) * HEIGHT, tile_n * COLUMNS, total)
    tma.store_wait(0)


@gluon.jit
def specialised(
    a, b, c, M, N, K, slope, STAGES: gl.constexpr, GROUPS: gl.constexpr, GROUP: gl.constexpr, TURNED: gl.constexpr,
    CHAIN: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Programs that stay: two or three groups that multiply and, in the last warp, who loads for them."""
    DEPTH: gl.constexpr = a.block_shape[1]
    COLUMNS: gl.constexpr = b.block_shape[0] if TURNED else b.block_shape[1]
    lefts = gl.allocate_shared_memory(a.dtype, [STAGES * GROUPS] + a.block_shape, a.layout)  # noqa: RUF005
    rights = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)  # noqa: RUF005
    outs = gl.allocate_shared_memory(c.dtype, [GROUPS] + c.block_shape, c.layout)  # noqa: RUF005
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=GROUPS)
    fence_async_shared()
    high, wide = gl.cdiv(M, a.block_shape[0] * GROUPS), gl.cdiv(N, COLUMNS)
    LINKS: gl.constexpr = CHAIN if CHAIN > 0 else 1
    steps = gl.cdiv(gl.cdiv(K, DEPTH), LINKS) * LINKS
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (multiply, (c, lefts, rights, outs, ready, free, high, wide, steps, slope, GROUP, TURNED, CHAIN, 0)),
                (multiply, (c, lefts, rights, outs, ready, free, high, wide, steps, slope, GROUP, TURNED, CHAIN, 1)),
                (load_tiles, (a, b, lefts, rights, ready, free, high, wide, steps, GROUP, TURNED)),
            ],
            [4, 1], [REGISTERS, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (multiply, (c, lefts, rights, outs, ready, free, high, wide, steps, slope, GROUP, TURNED, CHAIN, 0)),
                (multiply, (c, lefts, rights, outs, ready, free, high, wide, steps, slope, GROUP, TURNED, CHAIN, 1)),
                (multiply, (c, lefts, rights, outs, ready, free, high, wide, steps, slope, GROUP, TURNED, CHAIN, 2)),
                (load_tiles, (a, b, lefts, rights, ready, free, high, wide, steps, GROUP, TURNED)),
            ],
            [4, 4, 1], [REGISTERS, REGISTERS, 24],
        )  # fmt: skip


def is_hopper(device: torch.device) -> bool:
    """Warp groups multiply out of shared memory on Hopper alone; on CPU buffers kernels are interpreted."""
    return device.type != "cpu" and triton.runtime.driver.active.get_current_target().arch == 90


def form_of(m: int, n: int, k: int, item: int) -> Form | None:
    """What should be fastest for elements of `item` bytes; None where these warps are not for such a product."""
    best = max(FORMS[item], key=lambda form: form.rate * form.share(m, n))
    return best if k >= LEAST_DEPTH and best.share(m, n) >= FULL else None


def described(x: torch.Tensor, block: tuple[int, int]) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(list(block), DTYPES[x.dtype])
    return TensorDescriptor(x, list(x.shape), list(x.stride()), list(block), layout)


def product(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, form: Form, group: int,
    *, turned: bool = False, slope: float | None = None,
) -> None:  # fmt: skip
    """a is M x K, b is K x N or, turned, N x K, c is M x N; rows start at multiples of 16 bytes. float8 is turned."""
    (m, k), n, item = a.shape, c.shape[1], a.element_size()
    tiles = triton.cdiv(m, ROWS * form.groups) * triton.cdiv(n, form.columns)
    chain = 0 if item == 2 else 2 if form.groups == 2 and k >= DEEP else 1
    specialised[(min(PROCESSORS, tiles),)](
        described(a, (ROWS, form.k)),
        described(b, (form.columns, form.k) if turned else (form.k, form.columns)),
        described(c, (ROWS, form.out)),
        m, n, k, slope, form.stages, form.groups, group, turned, chain, form.registers, num_warps=4,
    )  # fmt: skip
