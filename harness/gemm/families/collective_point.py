"""Parameters of a kernel that is put together of CUTLASS's collectives."""

from __future__ import annotations

from typing import Literal

from hillclimb.harness.gemm.families.point import KernelPoint, RowOperand

KernelSchedule = Literal["basic", "pingpong", "cooperative"]
"""basic: one consumer warpgroup and one tile a block. The other two are persistent, with two consumer warpgroups: each
has a tile of its own, or both share one.
"""
EpilogueSchedule = Literal["single", "shared"]
"""Whether one warpgroup writes a tile, or two share it. Both by TMA."""
TileScheduler = Literal["persistent", "stream_k"]
CollectiveGenerator = Literal["simple_gemm", "scaled_mm"]


class CollectivePoint(KernelPoint):
    """One of them."""

    generator: CollectiveGenerator
    cluster: tuple[int, int]
    """Thread blocks along both."""
    schedule: KernelSchedule
    epilogue: EpilogueSchedule
    scheduler: TileScheduler
    rows: RowOperand = "tokens"

    @property
    def words(self) -> tuple[str, ...]:
        """The cluster, and how it works."""
        cluster = "x".join(map(str, self.cluster))
        return (cluster, self.schedule, self.epilogue, self.scheduler, self.rows)

    @property
    def alike(self) -> tuple[object, ...]:
        """All but the cluster."""
        own = (self.schedule, self.epilogue, self.scheduler, self.rows)
        return (self.generator, self.dtype, self.tile, *own)

    @property
    def consumers(self) -> int:
        """Warpgroups that share the sums of a tile."""
        return 2 if self.schedule == "cooperative" else 1
