"""How a generated kernel may be run for a shape, and what a model says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, log2, prod
from typing import NamedTuple

from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.families.point import CLUSTERS, MAX_CLUSTER, ROW_BLOCK, SLICE_BYTES, RowOperand
from hillclimb.harness.gemm.families.run_option import ALONG_COLUMNS, ALONG_ROWS, CHOICE, RunOption, as_run
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.families.warpgroup_rules import flexible_forms, steps
from hillclimb.harness.gemm.generator.types import AnyPoint
from hillclimb.harness.gemm.providers.cost import CLUSTERS_AT_ONCE, MULTIPROCESSORS, cost_seconds
from hillclimb.harness.gemm.shape import ITEM_BYTES, GemmShape

SPLITS = (1, 2, 4)
OVERHANG = 1.3
"""Times a size, that a cluster's tile may span where one tile would do."""

WASTE, MOST_WASTE = 2, 4
"""Times a size, that a tile's side is too long; and where a kernel has to serve sizes for which it was not made."""

LEAST_SIDES = (ROW_BLOCK, 8)
"""Rows and columns of the smallest tile: it is never too long."""

OTHER_CACHES = ((1, 1), (1, 2), (2, 1), (0, 2), (2, 0))
OTHER_STEPS = (3, 4, 5)
OTHER_SWIZZLES = (2, 4)

CLOCK_HERTZ = 1.75e9
TOKEN_BYTES, WEIGHT_BYTES, DRAM_BYTES = 24e12, 9.8e12, 4.6e12
"""A second: of tokens and of weights through the L2 cache, and of all from memory."""

PAIR_BYTES, PAIR_DRAM_BYTES = 320e9, 136e9
"""A second, into two multiprocessors that share a port: from the L2 cache, and from memory."""

START_SECONDS, WAVE_SECONDS = 1.73e-6, 5.3e-6
SPLIT_SECONDS = {1: 0.0, 2: 1.0e-6, 4: 1.6e-6, 8: 2.7e-6}
CLUSTER_SECONDS = 0.07e-6
"""For each doubling of the blocks."""

WRITE_SECONDS = 2.3e-6 / (128 * 128)
"""Of an element of a tile."""

OVERLAP = 3
"""Power in which times that overlap are added: the higher, the nearer to the longest of them."""


def run_options(
    point: AnyPoint, shape: GemmShape, *, pdl: bool = True, waste: int = WASTE
) -> Iterator[RunOption]:
    """Those that are worth a look, dependent launches among them with `pdl`."""
    if isinstance(point, CollectivePoint):
        yield from _of_collective(point, shape, pdl)
    elif not point.is_flexible:
        yield from _of_warpgroups(point, shape, pdl, waste)
    else:
        for form in flexible_forms(point):
            for option in _of_warpgroups(form, shape, pdl, waste):
                yield replace(option, splits=form.splits, is_persistent=form.is_persistent)


def orders(point: AnyPoint, option: RunOption, shape: GemmShape) -> Iterator[RunOption]:
    """It, and the other order of tiles where they are not all there at once."""
    yield option
    if isinstance(point, WarpgroupPoint) and _waves(as_run(point, option), option, shape) > 1:
        yield _in_other_order(option)


def further_options(point: AnyPoint, option: RunOption, *, pdl: bool = True) -> Iterator[RunOption]:
    """Those near one that is good."""
    if isinstance(point, CollectivePoint):
        return
    if pdl:
        yield replace(option, is_dependent=not option.is_dependent)
    yield _in_other_order(option)
    for swizzle in OTHER_SWIZZLES:
        yield replace(option, swizzle=swizzle)
    for caches in OTHER_CACHES:
        yield replace(option, caches=caches)
    yield replace(option, promotion=1 - option.promotion)
    for fewer in OTHER_STEPS:
        if fewer < steps(as_run(point, option)):
            yield replace(option, steps=fewer)


def way_seconds(point: AnyPoint, option: RunOption, shape: GemmShape) -> float:
    """By the model."""
    if isinstance(point, WarpgroupPoint):
        return _warpgroup_seconds(as_run(point, option), option, shape)
    rows, columns, _ = point.tile
    tile, cluster = (columns, rows), (point.cluster[1], point.cluster[0])
    if point.rows == "features":
        tile, cluster = (rows, columns), point.cluster
    return cost_seconds(shape, tile, cluster, option.splits)


def way_traits(point: WarpgroupPoint, option: RunOption, shape: GemmShape) -> tuple[float, ...]:
    """Numbers in which ways and shapes differ: what a regression of measured times goes by.

    A flexible kernel has those of the fixed one that it is run as.
    """
    fixed = as_run(point, option)
    tokens, features = _tokens_and_features(fixed, option)
    has_tokens_down = option.rows == "tokens"
    waves = _waves(fixed, option, shape)
    filled = _tiles(fixed, option, shape) / (_slots(fixed, option) * waves)
    runs_along_tokens = (option.raster != ALONG_COLUMNS) == has_tokens_down
    return (
        *(log2(shape.m), log2(shape.n), log2(shape.k), log2(shape.groups), ITEM_BYTES[shape.dtype]),
        *(tokens.tile, features.tile, fixed.tile[2], tokens.blocks, features.blocks, has_tokens_down),
        *(
            *fixed.consumers,
            fixed.splits,
            fixed.is_persistent,
            fixed.blocks,
            waves,
            filled,
            runs_along_tokens,
        ),
        *(
            option.is_dependent,
            option.promotion,
            option.swizzle,
            option.steps or steps(fixed),
            *option.caches,
        ),
    )


def sides(rows: RowOperand, shape: GemmShape) -> tuple[int, int]:
    """Rows and columns of the product as the kernel sees it."""
    return (shape.m, shape.n) if rows == "tokens" else (shape.n, shape.m)


def _of_collective(point: CollectivePoint, shape: GemmShape, pdl: bool) -> Iterator[RunOption]:
    if point.scheduler == "stream_k":
        for splits in SPLITS:
            yield RunOption(splits=splits, rows=point.rows)
        return
    rows, columns = sides(point.rows, shape)
    down, across = ceil(rows / point.tile[0]), ceil(columns / point.tile[1])
    is_one_wave = min(down, across) == 1 or down * across <= MULTIPROCESSORS
    rasters = (CHOICE,) if point.schedule == "basic" or is_one_wave else (ALONG_ROWS, ALONG_COLUMNS)
    for raster, is_dependent in product(rasters, (False, True) if pdl else (False,)):
        yield RunOption(raster=raster, is_dependent=is_dependent, rows=point.rows)


def _of_warpgroups(point: WarpgroupPoint, shape: GemmShape, pdl: bool, waste: int) -> Iterator[RunOption]:
    """Where all tiles are there at once, those one after another share tokens, and else weights."""
    operands: tuple[RowOperand, ...] = ("tokens", "features")
    for rows, cluster in product(operands, CLUSTERS):
        option = RunOption(is_dependent=pdl, rows=rows, cluster=cluster, promotion=1)
        if fits(point, option, shape, waste):
            is_one_wave = _waves(point, option, shape) == 1
            is_along_rows = is_one_wave == (rows == "features")
            yield replace(option, raster=ALONG_ROWS if is_along_rows else ALONG_COLUMNS)


def is_for(point: AnyPoint, shape: GemmShape) -> bool:
    """Whether it is of the shape's dtype, and of groups where the shape has them."""
    return point.dtype == shape.dtype and point.is_grouped == (shape.groups > 1)


def fits(point: WarpgroupPoint, option: RunOption, shape: GemmShape, waste: int) -> bool:
    """Whether it is worth a look: of a flexible kernel, the point that it is run as."""
    down, across = option.cluster
    if (
        ceil(shape.k / point.tile[2]) < point.splits
        or down * across * point.splits > MAX_CLUSTER
        or point.tile[0] % (8 * across)
        or point.tile[1] % (8 * down)
    ):
        return False
    of_group = sides(option.rows, shape.one_group)
    for size, side, least, blocks in zip(of_group, point.tile, LEAST_SIDES, option.cluster, strict=False):
        is_too_long = side > least and side >= waste * max(size, LEAST_SIDES[1])
        if is_too_long or side * blocks > OVERHANG * max(size, side):
            return False
    is_once_enough = _waves(point, option, shape) == 1
    return point.is_grouped or not (point.is_persistent and is_once_enough)


def _in_other_order(option: RunOption) -> RunOption:
    return replace(option, raster=ALONG_ROWS + ALONG_COLUMNS - option.raster)


def _waves(point: WarpgroupPoint, option: RunOption, shape: GemmShape) -> int:
    return max(1, ceil(_tiles(point, option, shape) / _slots(point, option)))


def _tiles(point: WarpgroupPoint, option: RunOption, shape: GemmShape) -> int:
    """Of clusters, over all groups: some have a row more than the others."""
    tokens, features = (side.tile * side.blocks for side in _tokens_and_features(point, option))
    each, more = divmod(shape.m, shape.used_groups)
    along_tokens = more * ceil((each + 1) / tokens) + (shape.used_groups - more) * ceil(each / tokens)
    return along_tokens * ceil(shape.n / features)


class _Side(NamedTuple):
    """Of an operand."""

    tile: int
    """Rows of it that a block takes."""
    blocks: int
    """Of a cluster, that take others."""


def _tokens_and_features(point: WarpgroupPoint, option: RunOption) -> tuple[_Side, _Side]:
    rows, columns = (_Side(*side) for side in zip(point.tile, option.cluster, strict=False))
    return (rows, columns) if option.rows == "tokens" else (columns, rows)


def _slots(point: WarpgroupPoint, option: RunOption) -> int:
    """Clusters at once."""
    blocks = option.cluster[0] * option.cluster[1] * point.splits
    return CLUSTERS_AT_ONCE.get(blocks, MULTIPROCESSORS // blocks) * point.blocks


def _warpgroup_seconds(point: WarpgroupPoint, option: RunOption, shape: GemmShape) -> float:
    """What a start, a split and a cluster cost, and five times that overlap.

    They are those of one multiprocessor's instructions, of what comes into a pair of multiprocessors from the L2 cache
    and from memory, of what all read through the cache, and of what is read from memory. Blocks go to one
    multiprocessor of each pair first, so 96 of them take longer to read what 66 or 132 would. The constants are fitted
    to 63000 times of two H200s.
    """
    rows, columns, _ = point.tile
    tiles, waves, own = _tiles(point, option, shape), _waves(point, option, shape), point.own_columns
    blocks = min(tiles, _slots(point, option)) * prod(option.cluster) * point.splits
    used = min(blocks, MULTIPROCESSORS)
    of_pair = 1 if used <= MULTIPROCESSORS // 2 else 2
    in_turn = waves * ceil(blocks / MULTIPROCESSORS)
    slices = ceil(shape.k * ITEM_BYTES[shape.dtype] / SLICE_BYTES)
    steps = slices / point.splits
    a_step = (rows / 64) * (columns / own) * max(own / 2, 16 + own / 4) * 4 / CLOCK_HERTZ
    between = WAVE_SECONDS * (waves - 1) * (not point.is_persistent and point.blocks == 1)
    tokens, features = _tokens_and_features(point, option)
    own_tokens = tokens.tile if features.blocks > 1 else min(tokens.tile, shape.m)
    read_bytes = tiles * slices * SLICE_BYTES
    times = (
        in_turn * (steps * a_step + rows * columns * WRITE_SECONDS) + between,
        in_turn * of_pair * steps * SLICE_BYTES * (own_tokens + features.tile) / PAIR_BYTES,
        of_pair * shape.bytes / used / PAIR_DRAM_BYTES,
        read_bytes
        * (tokens.blocks * own_tokens / TOKEN_BYTES + features.blocks * features.tile / WEIGHT_BYTES),
        shape.bytes / DRAM_BYTES,
    )
    fixed = START_SECONDS + SPLIT_SECONDS[point.splits] + CLUSTER_SECONDS * log2(prod(option.cluster))
    return fixed + sum(one**OVERLAP for one in times) ** (1 / OVERLAP)
