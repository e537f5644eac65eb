"""What a kernel of our own takes by a model, good enough to choose which ways to run it are worth timing."""

from __future__ import annotations

from math import ceil, pow, prod
from typing import NamedTuple

from hillclimb.harness.gemm.families.point import ROW_BLOCK, SLICE_BYTES
from hillclimb.harness.gemm.families.run_option import RunOption
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.providers.cost import CLUSTERS_AT_ONCE, MULTIPROCESSORS
from hillclimb.harness.gemm.shape import ITEM_BYTES, GemmShape

CLOCK_HERTZ = 1.75e9
TOKEN_BYTES, WEIGHT_BYTES, DRAM_BYTES = 22e12, 10.6e12, 4.6e12
"""A second: of tokens and of weights through the L2 cache, and of all from memory."""

PAIR_BYTES, PAIR_DRAM_BYTES = 313e9, 133e9
"""A second, into two multiprocessors: from the L2 cache, and from memory."""

START_SECONDS, WAVE_SECONDS = 1.75e-6, 5.5e-6
SPLIT_SECONDS = {1: 0.0, 2: 1.0e-6, 4: 1.5e-6, 8: 2.6e-6}

WRITE_SECONDS = 2.3e-6 / (128 * 128)
"""Of an element of a tile."""

OVERLAP = 3
"""Power in which times that overlap are added: the higher, the nearer to the longest of them."""


class TileSide(NamedTuple):
    """Of one operand."""

    tile: int
    """Rows of it that a block takes."""
    blocks: int
    """Of a cluster, that take rows of their own."""


class TileGrid(NamedTuple):
    """How the tiles of a product are spread over the card."""

    tokens: TileSide
    features: TileSide
    clusters: int
    """That have a tile each, over all groups."""
    at_once: int
    """Clusters that the card holds."""

    @classmethod
    def of(cls, point: WarpgroupPoint, option: RunOption, shape: GemmShape) -> TileGrid:
        """Some groups have a token more than the others."""
        tokens, features = (
            TileSide(point.tile[0], option.cluster[0]),
            TileSide(point.tile[1], option.cluster[1]),
        )
        if option.rows == "features":
            tokens, features = features, tokens
        each, more = divmod(shape.m, shape.used_groups)
        span = tokens.tile * tokens.blocks
        along_tokens = more * ceil((each + 1) / span) + (shape.used_groups - more) * ceil(each / span)
        blocks = prod(option.cluster) * point.splits
        return cls(
            tokens,
            features,
            along_tokens * ceil(shape.n / (features.tile * features.blocks)),
            CLUSTERS_AT_ONCE.get(blocks, MULTIPROCESSORS // blocks) * point.blocks,
        )

    @property
    def waves(self) -> int:
        """How often the card is filled."""
        return max(1, ceil(self.clusters / self.at_once))


def warpgroup_seconds(point: WarpgroupPoint, option: RunOption, shape: GemmShape) -> float:
    """What a start and a split cost, and five times that overlap.

    They are those of one multiprocessor's instructions, of what comes into a pair of multiprocessors from the L2 cache
    and from memory, of what all read through the cache, and of what is read from memory. Times are as if each pair had
    one port, and blocks went to one multiprocessor of each pair first: 96 blocks may take longer than 132 to read the
    same. The constants are no rates of the hardware. They are fitted to 33441 times of two H200s, of single products in
    bf16 with a power of two for m.
    """
    grid = TileGrid.of(point, option, shape)
    there = min(grid.clusters, grid.at_once)
    used = min(there * prod(option.cluster) * point.splits, MULTIPROCESSORS)
    of_pair = 1 if used <= MULTIPROCESSORS // 2 else 2
    in_turn = grid.waves * ceil(there * point.blocks / grid.at_once)
    slices = ceil(shape.k * ITEM_BYTES[shape.dtype] / SLICE_BYTES)
    own_slices = slices / point.splits
    tokens, features = grid.tokens, grid.features
    tile_tokens = tokens.tile if features.blocks > 1 else min(tokens.tile, shape.m)
    own_bytes = own_slices * SLICE_BYTES * (tile_tokens + features.tile)
    all_bytes = grid.clusters * slices * SLICE_BYTES
    between = 0.0 if point.is_persistent or point.blocks > 1 else WAVE_SECONDS * (grid.waves - 1)
    times = (
        in_turn * (own_slices * _slice_seconds(point) + prod(point.tile[:2]) * WRITE_SECONDS) + between,
        in_turn * of_pair * own_bytes / PAIR_BYTES,
        of_pair * shape.bytes / used / PAIR_DRAM_BYTES,
        all_bytes * tokens.blocks * tile_tokens / TOKEN_BYTES
        + all_bytes * features.blocks * features.tile / WEIGHT_BYTES,
        shape.bytes / DRAM_BYTES,
    )
    return (
        START_SECONDS
        + SPLIT_SECONDS[point.splits]
        + pow(sum(pow(one, OVERLAP) for one in times), 1 / OVERLAP)
    )


def _slice_seconds(point: WarpgroupPoint) -> float:
    """Of the tensor cores' instructions for 128 bytes along K."""
    rows, columns, _ = point.tile
    an_instruction = max(point.own_columns / 2, 16 + point.own_columns / 4)
    return rows / ROW_BLOCK * columns / point.own_columns * an_instruction * 4 / CLOCK_HERTZ
