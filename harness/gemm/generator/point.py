"""One set of parameters for a generated kernel."""

from __future__ import annotations

from typing import Literal

from hillclimb.harness.gemm.shape import ITEM_BYTES, Dtype
from hillclimb.harness.records.record import Record

KernelSchedule = Literal["basic", "pingpong", "cooperative"]
"""basic: one consumer warpgroup and one tile a block. The other two are persistent, with two consumer warpgroups: each
has a tile of its own, or both share one.
"""
EpilogueSchedule = Literal["single", "shared"]
"""Whether one warpgroup writes a tile, or two share it. Both by TMA."""
TileScheduler = Literal["persistent", "stream_k"]
RowOperand = Literal["tokens", "features"]
"""Whose rows are on M of the tensor cores' instruction, which takes them by 64; the other operand's are on N, by 8."""


class KernelPoint(Record):
    """What decides a kernel when it is compiled."""

    generator: str
    dtype: Dtype
    tile: tuple[int, int, int]
    """Rows of both operands, and elements along K a step."""
    cluster: tuple[int, int]
    """Thread blocks along both."""
    schedule: KernelSchedule
    epilogue: EpilogueSchedule
    scheduler: TileScheduler
    rows: RowOperand = "tokens"

    @property
    def name(self) -> str:
        """An identifier of C, of all its parameters."""
        sizes = ("x".join(map(str, sizes)) for sizes in (self.tile, self.cluster))
        words = (self.schedule, self.epilogue, self.scheduler, self.rows)
        return "_".join((self.generator, self.dtype, *sizes, *words))

    @property
    def consumers(self) -> int:
        """Warpgroups that share the sums of a tile."""
        return 2 if self.schedule == "cooperative" else 1

    @property
    def step_bytes(self) -> int:
        """Of shared memory, for one step along K of one tile."""
        rows, columns, inner = self.tile
        return (rows + columns) * inner * ITEM_BYTES[self.dtype]
