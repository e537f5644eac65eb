"""A model of what a tiled product takes on a Hopper card, good enough to choose what is worth timing."""

from __future__ import annotations

import math

from hillclimb.harness.gemm.shape import ITEM_BYTES, GemmShape

MULTIPROCESSORS = 132
CLUSTERS_AT_ONCE = {1: 132, 2: 66, 4: 30, 8: 15}
"""By their thread blocks, as the occupancy call gives it for an H100."""

CLOCK_HERTZ = 1.68e9
INTAKE_BYTES = 62.0
"""Into a multiprocessor, a clock."""

L2_BYTES, DRAM_BYTES = 9e12, 3e12
"""A second."""

STEP_BYTES = 128
"""Of an operand's row, that a step along K takes."""

PRODUCTS = {2: 2048, 1: 4096}
"""Of a multiprocessor's tensor cores, a clock, by the bytes of an operand's element."""

SLACK = 1.05


def cost_seconds(
    shape: GemmShape,
    tile: tuple[int, int],
    cluster: tuple[int, int] = (1, 1),
    splits: int = 1,
    *,
    is_streamed: bool = False,
) -> float:
    """Of tiles of features by tokens, in clusters of so many along both, with K in so many parts.

    The longest of three: the steps of one multiprocessor, what all read through the L2 cache, and what is read from
    memory. A step is as long as its tensor instructions, or as its operands are on their way. Where steps are streamed,
    each multiprocessor has as many as the others, and leaves a part of two tiles.
    """
    features, tokens = tile
    item = ITEM_BYTES[shape.dtype]
    clusters = math.ceil(shape.n / (features * cluster[0])) * math.ceil(shape.m / (tokens * cluster[1]))
    blocks = cluster[0] * cluster[1]
    slots = CLUSTERS_AT_ONCE.get(blocks, MULTIPROCESSORS // blocks)
    steps = math.ceil(shape.k * item / STEP_BYTES / splits)
    waves = clusters / slots if is_streamed else math.ceil(clusters * splits / slots)
    products = features * tokens * STEP_BYTES / item / PRODUCTS[item] * SLACK
    intake = (features + tokens) * STEP_BYTES / INTAKE_BYTES
    own = waves * steps * max(products, intake) / CLOCK_HERTZ
    through_l2 = (
        clusters * blocks * steps * splits * STEP_BYTES * (features / cluster[1] + tokens / cluster[0])
    )
    partial = 8 * (
        2 * slots * features * tokens if is_streamed else splits * shape.m * shape.n * (splits > 1)
    )
    return max(own, (through_l2 + partial) / L2_BYTES, shape.bytes / DRAM_BYTES)
