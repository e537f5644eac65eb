"""Products of QuACK, whose kernels are written in NVIDIA's CuTe DSL and compiled when they are first called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.providers.cost import MULTIPROCESSORS, cost_seconds
from hillclimb.harness.gemm.providers.provider import Launch, Operands, UnsupportedError
from hillclimb.harness.gemm.shape import Dtype, GemmShape

PACKAGES = ("quack-kernels", "nvidia-cutlass-dsl")

DTYPES: tuple[Dtype, ...] = ("bf16", "f16", "fp8")

CONFIGURATIONS = 12
"""Of one shape, that are worth timing."""

ROWS = (64, 128, 192, 256)
COLUMNS = (16, 32, 48, 64, 96, 128, 160, 192, 208, 256)
CLUSTERS = ((1, 1), (2, 1), (1, 2))
SPLITS = (1, 2, 4)

MAX_COLUMNS = {
    True: {64: 256, 128: 208, 192: 128},
    False: {64: 256, 128: 256, 192: 128, 256: 208},
}
"""Of a tile, by whether it is one of two that take turns, and by its rows: more sums do not fit into registers."""

COLUMN_STEPS = {192: 32}
"""Of tiles with so many rows that do not take turns; of others it is 16."""


@dataclass(frozen=True)
class CuteTile:
    """What one compiled kernel does."""

    rows: int
    """On the M of wgmma."""
    columns: int
    cluster: tuple[int, int]
    """Blocks along both."""
    is_pingpong: bool
    """Whether two warpgroups have a tile each and take turns, or share one."""
    has_features_on_rows: bool
    """Whether weights are on the rows, and tokens on the columns."""
    splits: int = 1
    """Parts of K, which are added in their order."""

    @property
    def is_possible(self) -> bool:
        """By what QuACK asks of a tile."""
        step = 16 if self.is_pingpong else COLUMN_STEPS.get(self.rows, 16)
        return self.columns <= MAX_COLUMNS[self.is_pingpong].get(self.rows, 0) and self.columns % step == 0

    def seconds(self, shape: GemmShape) -> float:
        """By the cost model."""
        tile, cluster = (self.rows, self.columns), self.cluster
        if not self.has_features_on_rows:
            tile, cluster = tile[::-1], cluster[::-1]
        return cost_seconds(shape, tile, cluster, self.splits)

    def tiles(self, shape: GemmShape) -> int:
        """Of the result."""
        on_rows, on_columns = (shape.n, shape.m) if self.has_features_on_rows else (shape.m, shape.n)
        return math.ceil(on_rows / self.rows) * math.ceil(on_columns / self.columns)

    def is_wasteful(self, shape: GemmShape) -> bool:
        """Whether half of it is beyond the tokens, or K is split for a card that is full without."""
        tokens, least = (self.columns, COLUMNS[0]) if self.has_features_on_rows else (self.rows, ROWS[0])
        is_full = self.splits > 1 and self.tiles(shape) * self.splits > 2 * MULTIPROCESSORS
        return is_full or (tokens > least and tokens >= 2 * shape.m)

    def __str__(self) -> str:
        sizes = f"{self.rows}x{self.columns}_{self.cluster[0]}x{self.cluster[1]}"
        turns = "pingpong" if self.is_pingpong else "cooperative"
        return f"{sizes}_{turns}_splits{self.splits}_{'features' if self.has_features_on_rows else 'tokens'}"


class CuteDsl:
    """Kernels of one shape."""

    def __init__(self) -> None:
        """Raises UsageError where QuACK is not installed."""
        try:
            from quack.gemm import gemm
        except ImportError as error:
            raise UsageError(
                f"the provider cute_dsl needs QuACK ({error}): pip install 'quack-kernels[cu13]'"
            ) from error
        self._gemm: Any = gemm
        self._tiles: dict[str, CuteTile] = {}

    def software(self) -> dict[str, str]:
        return {name: version(name) for name in PACKAGES}

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """The likeliest by the cost model.

        Raises UnsupportedError for int8, scales and groups, and for rows that are no multiples of 16 bytes.
        """
        if shape.groups > 1:
            raise UnsupportedError("this provider has single products alone, none of groups")
        if shape.dtype not in DTYPES:
            raise UnsupportedError(f"this provider has {', '.join(DTYPES)}, not {shape.dtype}")
        if any(tensor.shape[-1] * tensor.element_size() % 16 for tensor in (example.x, example.out)):
            raise UnsupportedError(f"TMA takes rows of 16 bytes, not n = {shape.n}, k = {shape.k}")
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
        operands = tuple(one.unsqueeze(0) for one in operands)
    rest = {"pingpong": tile.is_pingpong, "split_k": tile.splits}
    gemm(*operands, None, None, tile.rows, tile.columns, *tile.cluster, **rest)


def possible() -> Iterator[CuteTile]:
    """All tiles that QuACK can build."""
    for values in itertools.product(ROWS, COLUMNS, CLUSTERS, (False, True), (True, False), SPLITS):
        tile = CuteTile(*values)
        if tile.is_possible:
            yield tile


def likeliest(shape: GemmShape) -> list[CuteTile]:
    """Of all tiles, those that the model thinks most of."""
    found = [tile for tile in possible() if not tile.is_wasteful(shape)]
    return sorted(found, key=lambda tile: tile.seconds(shape))[:CONFIGURATIONS]
