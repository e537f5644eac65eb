"""Products of QuACK, whose kernels are written in NVIDIA's CuTe DSL and compiled when they are first called."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.providers.cost import MULTIPROCESSORS, cost_seconds
from hillclimb.harness.gemm.providers.provider import (
    HOPPER,
    Launch,
    Operands,
    UnsupportedError,
    is_for_tma,
)
from hillclimb.harness.gemm.shape import Dtype, GemmShape

PACKAGES = ("quack-kernels", "nvidia-cutlass-dsl")

DTYPES: tuple[Dtype, ...] = ("bf16", "f16")
"""QuACK sums fp8 more exactly than the baseline, cuBLAS with fast accumulation, and needs more registers for it."""

WAYS, WAYS_OF_TILE = 12, 3
"""Of one shape, that are timed, and of those how many have the same tile: the cost model has ties."""

ROWS = (64, 128, 192, 256)
COLUMNS = (16, 32, 48, 64, 80, 96, 128, 160, 192, 208, 224, 256)
CLUSTERS = ((1, 1), (2, 1), (1, 2))

SPLIT_SECONDS = {1: 0.0, 2: 2.3e-6, 4: 8.1e-6}
"""By the parts of K: what 228 ways for 19 shapes took longer on an H200. Another kernel fills counts with zeros."""

MAX_COLUMNS = {
    True: {64: 256, 128: 208, 192: 128},
    False: {64: 256, 128: 256, 192: 128, 256: 208},
}
"""Of a tile, by whether it is one of two that take turns, and by its rows. 192x256 and 256x256 are
possible, but QuACK does not list them."""


@dataclass(frozen=True)
class CuteTile:
    """What one compiled kernel does."""

    rows: int
    """On the M of wgmma."""
    columns: int
    has_features_on_rows: bool
    """Whether weights are on the rows, and tokens on the columns."""
    splits: int
    """Parts of K, which are added in their order."""
    cluster: tuple[int, int]
    """Blocks along rows and columns."""
    is_pingpong: bool
    """Whether two warpgroups have a tile each and take turns, or share one."""

    @property
    def is_possible(self) -> bool:
        """By what QuACK asks of a tile: three warpgroups share columns in steps of 32, and others in steps of 16."""
        step = 32 if self.rows == 192 and not self.is_pingpong else 16
        return self.columns <= MAX_COLUMNS[self.is_pingpong].get(self.rows, 0) and self.columns % step == 0

    def seconds(self, shape: GemmShape) -> float:
        """By the cost model."""
        tile, cluster = (self.rows, self.columns), self.cluster
        if not self.has_features_on_rows:
            tile, cluster = tile[::-1], cluster[::-1]
        return cost_seconds(shape, tile, cluster, self.splits) + SPLIT_SECONDS[self.splits]

    def is_wasteful(self, shape: GemmShape) -> bool:
        """Whether half of it is beyond the tokens, or K is split for a card that is full without."""
        if self.has_features_on_rows:
            features, tokens, least = self.rows, self.columns, COLUMNS[0]
        else:
            features, tokens, least = self.columns, self.rows, ROWS[0]
        blocks = math.ceil(shape.n / features) * math.ceil(shape.m / tokens) * self.splits
        is_full = self.splits > 1 and blocks > 2 * MULTIPROCESSORS
        return is_full or (tokens > least and tokens >= 2 * shape.m)

    def __str__(self) -> str:
        sizes = f"{self.rows}x{self.columns}_{self.cluster[0]}x{self.cluster[1]}"
        turns = "pingpong" if self.is_pingpong else "cooperative"
        return f"{sizes}_{turns}_splits{self.splits}_{'features' if self.has_features_on_rows else 'tokens'}"


class CuteDsl:
    """Kernels of one shape."""

    def __init__(self) -> None:
        """Raises UsageError where QuACK cannot be imported."""
        try:
            from quack.gemm import gemm
        except ImportError as error:
            raise UsageError(
                f"QuACK cannot be imported ({error}): pip install 'quack-kernels[cu13]', or leave cute_dsl out of "
                "--providers"
            ) from error
        self._gemm: Any = gemm
        self._tiles: dict[str, CuteTile] = {}

    def software(self) -> dict[str, str]:
        return {name: version(name) for name in PACKAGES}

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """The likeliest by the cost model.

        Raises UnsupportedError on another GPU than Hopper's, for eight bits, groups, and rows that TMA does not take.
        """
        if torch.cuda.get_device_capability() != HOPPER:
            raise UnsupportedError("these tiles are those of Hopper, sm_90")
        if shape.groups > 1:
            raise UnsupportedError("this provider has single products alone, none of groups")
        if shape.dtype not in DTYPES:
            raise UnsupportedError(f"this provider has {', '.join(DTYPES)}, not {shape.dtype}")
        if not is_for_tma(shape):
            raise UnsupportedError(f"TMA takes rows in steps of 16 bytes, not n = {shape.n}, k = {shape.k}")
        self._tiles = {str(tile): tile for tile in likeliest(shape)}
        return list(self._tiles)

    def launch(self, shape: GemmShape, kernel: str) -> Launch:
        """One of those, which is compiled by its first call."""
        tile = self._tiles[kernel]
        return lambda to: multiply(self._gemm, to, tile)


def multiply(gemm: Any, to: Operands, tile: CuteTile) -> None:
    """By `quack.gemm.gemm`, whose operands are [rows, k] and [columns, k], or [1, rows, k] where K is split."""
    x, w, out = to.x, to.w, to.out
    operands = (w, x, out.t()) if tile.has_features_on_rows else (x, w, out)
    if tile.splits > 1:
        operands = tuple(tensor.unsqueeze(0) for tensor in operands)
    options = {"pingpong": tile.is_pingpong, "split_k": tile.splits}
    gemm(*operands, None, None, tile.rows, tile.columns, *tile.cluster, **options)


def possible() -> Iterator[CuteTile]:
    """All that are tried."""
    for values in itertools.product(ROWS, COLUMNS, (True, False), SPLIT_SECONDS, CLUSTERS, (False, True)):
        tile = CuteTile(*values)
        if tile.is_possible:
            yield tile


def likeliest(shape: GemmShape) -> list[CuteTile]:
    """Of these, those that the model thinks most of, with several sizes among them."""
    found = sorted(
        (tile for tile in possible() if not tile.is_wasteful(shape)), key=lambda tile: tile.seconds(shape)
    )
    alike = Counter[tuple[int, int, bool]]()
    chosen = []
    for tile in found:
        size = (tile.rows, tile.columns, tile.has_features_on_rows)
        if alike[size] < WAYS_OF_TILE:
            alike[size] += 1
            chosen.append(tile)
    return chosen[:WAYS]
