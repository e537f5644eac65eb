"""How a generated kernel may be run for a shape, and what a model says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, log2

from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.families.point import CLUSTERS, MAX_CLUSTER, ROW_BLOCK, RowOperand
from hillclimb.harness.gemm.families.run_option import ALONG_COLUMNS, ALONG_ROWS, CHOICE, RunOption, as_run
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.families.warpgroup_rules import flexible_forms, steps
from hillclimb.harness.gemm.generator.types import AnyPoint
from hillclimb.harness.gemm.providers.cost import MULTIPROCESSORS, cost_seconds
from hillclimb.harness.gemm.providers.warpgroup_cost import TileGrid, warpgroup_seconds
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
    if isinstance(point, WarpgroupPoint) and TileGrid.of(as_run(point, option), option, shape).waves > 1:
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
        return warpgroup_seconds(as_run(point, option), option, shape)
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
    grid = TileGrid.of(fixed, option, shape)
    tokens, features, waves = grid.tokens, grid.features, grid.waves
    filled = grid.clusters / (grid.at_once * waves)
    has_tokens_down = option.rows == "tokens"
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
            is_one_wave = TileGrid.of(point, option, shape).waves == 1
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
    if point.is_grouped or not point.is_persistent:
        return True
    return TileGrid.of(point, option, shape).waves > 1


def _in_other_order(option: RunOption) -> RunOption:
    return replace(option, raster=ALONG_ROWS + ALONG_COLUMNS - option.raster)
