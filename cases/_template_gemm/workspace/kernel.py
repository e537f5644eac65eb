"""out = x w^T for tokens x and weights w: gemm.cu, with the plan and the way to run it that the knobs ask for."""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from knobs import knob
from launch import ClusterKernel, compile_cuda, tensor_map
from plan import DTYPE, ITEM_BYTES, SLICE_BYTES, Plan

PLAN = Plan(
    rows=knob("GEMM_ROWS"),
    columns=knob("GEMM_COLUMNS"),
    consumers=(knob("GEMM_CONSUMERS_DOWN"), knob("GEMM_CONSUMERS_ACROSS")),
    slices=knob("GEMM_SLICES"),
    splits=knob("GEMM_SPLITS"),
    is_persistent=knob("GEMM_PERSISTENT"),
    blocks=knob("GEMM_BLOCKS"),
)
TOKENS_ARE_ROWS = knob("GEMM_TOKENS") == "rows"
DOWN, ACROSS = knob("GEMM_CLUSTER_DOWN"), knob("GEMM_CLUSTER_ACROSS")
STEPS = knob("GEMM_STEPS") or PLAN.steps
RASTER = 1 if knob("GEMM_RASTER") == "rows" else 2
SWIZZLE, PROMOTION = knob("GEMM_SWIZZLE"), int(knob("GEMM_FETCH") == 128)

POLICIES = {"usual": 0x1000000000000000, "first": 0x12F0000000000000, "last": 0x14F0000000000000}
"""Of the L2 cache, as the hardware encodes them: as usual, given up first, kept longest."""

POLICY = POLICIES[knob("GEMM_ROWS_CACHE")], POLICIES[knob("GEMM_COLUMNS_CACHE")]

ALIGNMENT = 1024
"""Of what TMA swizzles in shared memory."""

CODE = Path(__file__).with_name("gemm.cu")


@cache
def compiled(plan: Plan) -> ClusterKernel:
    """gemm.cu by this plan."""
    source = CODE.read_text(encoding="utf-8") + plan.source()
    cubin, name = compile_cuda(source, "generated::multiply<generated::Chosen>")
    return ClusterKernel(cubin, name, plan.threads, ALIGNMENT + plan.room, is_dependent=knob("GEMM_PDL"))


@cache
def clusters_at_once(plan: Plan) -> int:
    """That the GPU runs at the same time."""
    return compiled(plan).clusters_at_once(DOWN * ACROSS * plan.splits)


compiled(PLAN)
compiled(replace(PLAN, splits=1))  # for problems whose K is too short to be shared


def run(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """out[m, n] = x[m, k] w[n, k]^T, all row-major. Rows are multiples of 16 bytes, for TMA."""
    a, b = (x, w) if TOKENS_ARE_ROWS else (w, x)
    inner = SLICE_BYTES // ITEM_BYTES
    inner_steps = _tiles(x.shape[1], inner * PLAN.slices)
    plan = PLAN if inner_steps >= PLAN.splits else replace(PLAN, splits=1)
    a_box, b_box = _box(plan.rows, ACROSS, a.shape[0]), _box(plan.columns, DOWN, b.shape[0])
    maps = (
        tensor_map(DTYPE, a, (a_box, inner), PROMOTION),
        tensor_map(DTYPE, b, (b_box, inner), PROMOTION),
    )
    row_tiles, column_tiles = _tiles(a.shape[0], plan.rows * DOWN), _tiles(b.shape[0], plan.columns * ACROSS)
    tiles = row_tiles * column_tiles
    clusters = min(tiles, clusters_at_once(plan)) if plan.is_persistent else tiles
    numbers = (
        *(a.shape[0], b.shape[0], not TOKENS_ARE_ROWS),
        *(DOWN, ACROSS, STEPS, RASTER, SWIZZLE),
        *(row_tiles, column_tiles, tiles, clusters, inner_steps),
        plan.slices * SLICE_BYTES * (a_box * ACROSS + b_box * DOWN),
    )
    shared = ALIGNMENT + max(STEPS * plan.step_bytes + plan.own_staging, plan.exchange)
    compiled(plan)(clusters, DOWN * ACROSS * plan.splits, shared, maps, _work(out.data_ptr(), numbers))


def _work(result: int, numbers: tuple[int, ...]) -> array[int]:
    """The struct Work of gemm.cu: an address, 14 numbers and two policies."""
    work = array("B", array("Q", [result]).tobytes())
    work.frombytes(array("i", numbers).tobytes())
    work.frombytes(array("Q", POLICY).tobytes())
    return work


def _box(tile: int, sharers: int, size: int) -> int:
    """Rows of an operand that TMA brings at once: no more than there are, but for what is brought for others, too."""
    return tile // sharers if sharers > 1 else min(tile, size)


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)
