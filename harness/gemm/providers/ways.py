"""How a generated kernel may be run for a shape, and what a model says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, log2

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

OTHER_CACHES = ((1, 1), (1, 2), (2, 1), (0, 2), (2, 0))
OTHER_STEPS = (3, 4, 5)
OTHER_SWIZZLES = (2, 4)

CLOCK_HERTZ = 1.75e9
L2_BYTES, DRAM_BYTES = 15e12, 4.5e12
"""A second."""

START_SECONDS, WAVE_SECONDS = 2.6e-6, 5e-6
SPLIT_SECONDS = {1: 0.0, 2: 1.4e-6, 4: 3.3e-6, 8: 5e-6}
"""That of 8 is not measured."""

CLUSTER_SECONDS = 0.3e-6
"""For each doubling of the blocks."""

SHARING = 1.03
"""Times as long, with two blocks a multiprocessor."""

OVERLAP = 0.3
"""Of the shorter of two times, that is not hidden behind the longer."""


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
    (rows, columns, inner), (down, across) = fixed.tile, option.cluster
    has_tokens_down = option.rows == "tokens"
    tokens, features = (rows, columns) if has_tokens_down else (columns, rows)
    along_tokens, along_features = (down, across) if has_tokens_down else (across, down)
    waves = _waves(fixed, option, shape)
    filled = _tiles(fixed, option, shape) / (_slots(fixed, option) * waves)
    runs_along_tokens = (option.raster != ALONG_COLUMNS) == has_tokens_down
    return (
        *(log2(shape.m), log2(shape.n), log2(shape.k), log2(shape.groups), ITEM_BYTES[shape.dtype]),
        *(tokens, features, inner, along_tokens, along_features, has_tokens_down),
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
    is_tiny = max(of_group) < ROW_BLOCK
    for size, side, blocks in zip(of_group, point.tile, option.cluster, strict=False):
        is_too_long = side >= waste * max(size, 8) and not (is_tiny and side == ROW_BLOCK)
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
    (rows, columns, _), (down, across) = point.tile, option.cluster
    tokens, features = (
        (rows * down, columns * across) if option.rows == "tokens" else (columns * across, rows * down)
    )
    each, more = divmod(shape.m, shape.used_groups)
    along_tokens = more * ceil((each + 1) / tokens) + (shape.used_groups - more) * ceil(each / tokens)
    return along_tokens * ceil(shape.n / features)


def _slots(point: WarpgroupPoint, option: RunOption) -> int:
    """Clusters at once."""
    blocks = option.cluster[0] * option.cluster[1] * point.splits
    return CLUSTERS_AT_ONCE.get(blocks, MULTIPROCESSORS // blocks) * point.blocks


def _warpgroup_seconds(point: WarpgroupPoint, option: RunOption, shape: GemmShape) -> float:
    """As the model of all products, with what a start, a wave, a split and a cluster cost beside it.

    Its constants are fitted to 13000 times of an H200: for each of 120 shapes the best was among the 48 that it took
    for the fastest, but for 0.2 % in the mean.
    """
    rows, columns, _ = point.tile
    tiles, (down, across) = _tiles(point, option, shape), option.cluster
    slices = ceil(shape.k * ITEM_BYTES[shape.dtype] / SLICE_BYTES)
    own = point.own_columns
    a_slice = (rows / 64) * (columns / own) * max(own / 2, 16 + own / 4) * 4 / CLOCK_HERTZ
    waves = _waves(point, option, shape)
    between = WAVE_SECONDS * (waves - 1) * (not point.is_persistent and point.blocks == 1)
    busy = waves * slices / point.splits * a_slice * point.blocks + between
    read = tiles * down * across * slices * SLICE_BYTES * (rows / across + columns / down) + shape.bytes
    through = max(shape.bytes / DRAM_BYTES, read / L2_BYTES)
    fixed = START_SECONDS + SPLIT_SECONDS[point.splits] + CLUSTER_SECONDS * log2(down * across)
    return (fixed + max(busy, through) + OVERLAP * min(busy, through)) * (
        SHARING if point.blocks > 1 else 1.0
    )
