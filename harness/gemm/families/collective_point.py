"""Parameters of a kernel that is put together of CUTLASS's collectives."""

from __future__ import annotations

import re
from typing import Literal, get_args

from hillclimb.harness.gemm.families.point import SIZE, KernelPoint, RowOperand
from hillclimb.harness.gemm.shape import Dtype

KernelSchedule = Literal["basic", "pingpong", "cooperative"]
"""basic: one consumer warpgroup and one tile a block. The other two are persistent, with two consumer warpgroups: each
has a tile of its own, or both share one.
"""
EpilogueSchedule = Literal["single", "shared"]
"""Whether one warpgroup writes a tile, or two share it. Both by TMA."""
TileScheduler = Literal["persistent", "stream_k"]
CollectiveGenerator = Literal["simple_gemm", "scaled_mm"]


NAME = re.compile(
    rf"(?P<generator>{'|'.join(get_args(CollectiveGenerator))})_(?P<dtype>{'|'.join(get_args(Dtype))})"
    rf"_(?P<rows>{SIZE})x(?P<columns>{SIZE})x(?P<inner>{SIZE})_(?P<down>{SIZE})x(?P<across>{SIZE})"
    rf"_(?P<schedule>{'|'.join(get_args(KernelSchedule))})_(?P<epilogue>{'|'.join(get_args(EpilogueSchedule))})"
    rf"_(?P<scheduler>{'|'.join(get_args(TileScheduler))})_(?P<operand>{'|'.join(get_args(RowOperand))})"
)


class CollectivePoint(KernelPoint):
    """One of them."""

    generator: CollectiveGenerator
    cluster: tuple[int, int]
    """Thread blocks along both."""
    schedule: KernelSchedule
    epilogue: EpilogueSchedule
    scheduler: TileScheduler
    rows: RowOperand = "tokens"

    @classmethod
    def named(cls, name: str) -> CollectivePoint | None:
        """That of this name; None where it is of none."""
        found = NAME.fullmatch(name)
        if found is None:
            return None
        words = ("generator", "dtype", "schedule", "epilogue", "scheduler")
        return cls.model_validate(
            {
                **{word: found[word] for word in words},
                "tile": tuple(int(found[size]) for size in ("rows", "columns", "inner")),
                "cluster": (int(found["down"]), int(found["across"])),
                "rows": found["operand"],
            }
        )

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
