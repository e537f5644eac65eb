"""Named sets of parameters of our own kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from hillclimb.harness.gemm.families.point import SLICE_BYTES
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupGenerator, WarpgroupPoint
from hillclimb.harness.gemm.shape import ITEM_BYTES, Dtype

FORMS = (((1, 1), 64), ((1, 1), 128), ((2, 1), 128), ((2, 1), 256), ((1, 2), 128), ((3, 1), 192))
"""Consumers, and rows of a tile."""

COLUMNS = (*range(8, 128, 8), *range(128, 257, 16))
STYLES = (
    *((1, False, 1, 1), (1, False, 1, 2), (1, False, 2, 1), (1, True, 1, 1)),
    *((splits, False, 1, slices) for splits in (2, 4, 8) for slices in (1, 2)),
)
"""Splits, whether it is persistent, blocks of a multiprocessor, and slices of 128 bytes a step."""

GROUPED_STYLES = ((1, True, 1, 1), (1, True, 2, 1), (1, True, 1, 2))
"""Likewise, of products of groups: a block takes one tile after another."""

FLEXIBLE_STYLES = ((1, False, 1, 1), (1, False, 2, 1), (1, False, 1, 2))
"""Likewise, of flexible kernels."""

MOST_SPLITS, FEW_COLUMNS = 8, 32
"""The former are for narrow tiles alone. No shape of the grid had one of them as its best on an H200."""


def hopper(dtype: Dtype) -> Iterator[WarpgroupPoint]:
    """Columns in steps of 8, from 128 on of 16; K split in a cluster, and one or two blocks a multiprocessor."""
    return _points("warpgroup_gemm", dtype, STYLES)


def flexible(dtype: Dtype) -> Iterator[WarpgroupPoint]:
    """The same tiles, but for the largest: they leave no registers for all that may be chosen at the call."""
    for point in _points("warpgroup_gemm", dtype, FLEXIBLE_STYLES):
        yield point.model_copy(update={"is_flexible": True})


def grouped(dtype: Dtype) -> Iterator[WarpgroupPoint]:
    """The same tiles, with as many blocks a multiprocessor."""
    return _points("grouped_gemm", dtype, GROUPED_STYLES)


def _points(
    generator: WarpgroupGenerator, dtype: Dtype, styles: Sequence[tuple[int, bool, int, int]]
) -> Iterator[WarpgroupPoint]:
    for (consumers, rows), columns, style in product(FORMS, COLUMNS, styles):
        splits, is_persistent, blocks, slices = style
        if splits == MOST_SPLITS and columns > FEW_COLUMNS:
            continue
        yield WarpgroupPoint(
            generator=generator,
            dtype=dtype,
            tile=(rows, columns, slices * SLICE_BYTES // ITEM_BYTES[dtype]),
            consumers=consumers,
            splits=splits,
            is_persistent=is_persistent,
            blocks=blocks,
        )


WARPGROUP_SETS: dict[str, Callable[[Dtype], Iterator[WarpgroupPoint]]] = {
    "hopper": hopper,
    "flexible": flexible,
}
GROUPED_SETS: dict[str, Callable[[Dtype], Iterator[WarpgroupPoint]]] = {"hopper": grouped}
