"""Named sets of parameters: the manifest of what may be generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.generator.point import (
    EpilogueSchedule,
    KernelPoint,
    KernelSchedule,
    RowOperand,
    TileScheduler,
)
from hillclimb.harness.gemm.generator.types import generator_type
from hillclimb.harness.gemm.shape import ITEM_BYTES, Dtype
from hillclimb.harness.wording import suggestion

ParameterSet = Callable[[str, Dtype], Iterator[KernelPoint]]
"""Of a generator and a dtype."""

SIDES, INNERS = (64, 128, 256), (32, 64, 128, 256)
CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (8, 1), (1, 8), (4, 4))
SMALL_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
SCHEDULES: tuple[KernelSchedule, ...] = ("basic", "pingpong", "cooperative")
EPILOGUES: tuple[EpilogueSchedule, ...] = ("single", "shared")
SCHEDULERS: tuple[TileScheduler, ...] = ("persistent", "stream_k")
OPERANDS: tuple[RowOperand, ...] = ("tokens", "features")

PINGPONG_COLUMNS = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 256)
COOPERATIVE_COLUMNS = (64, 96, 112, 128, 144, 160, 176, 192, 224, 256)
STEP_BYTES = 128
"""Of a row, a step: what one swizzle of shared memory spans."""


def seed002(generator: str, dtype: Dtype) -> Iterator[KernelPoint]:
    """The full grid of powers of two: 3888 points, of which less than half can be built."""
    for rows, columns, inner, cluster, schedule, epilogue, scheduler in product(
        *(SIDES, SIDES, INNERS, CLUSTERS, SCHEDULES, EPILOGUES, SCHEDULERS)
    ):
        yield KernelPoint(
            generator=generator,
            dtype=dtype,
            tile=(rows, columns, inner),
            cluster=cluster,
            schedule=schedule,
            epilogue=epilogue,
            scheduler=scheduler,
        )


def hopper(generator: str, dtype: Dtype) -> Iterator[KernelPoint]:
    """Both operands on M, columns in steps of 16, clusters of up to four."""
    inner = STEP_BYTES // ITEM_BYTES[dtype]
    for rows, cluster in product(OPERANDS, SMALL_CLUSTERS):
        for side, columns in product((64, 128), PINGPONG_COLUMNS):
            yield KernelPoint(
                generator=generator,
                dtype=dtype,
                tile=(side, columns, inner),
                cluster=cluster,
                schedule="pingpong",
                epilogue="single",
                scheduler="persistent",
                rows=rows,
            )
        for side, columns, scheduler in product((128, 256), COOPERATIVE_COLUMNS, SCHEDULERS):
            yield KernelPoint(
                generator=generator,
                dtype=dtype,
                tile=(side, columns, inner),
                cluster=cluster,
                schedule="cooperative",
                epilogue="shared",
                scheduler=scheduler,
                rows=rows,
            )


def chosen_points(generator: str, name: str, dtype: Dtype) -> list[KernelPoint]:
    """Of this set. Raises UsageError for a generator, a set or a dtype that there is not."""
    kind = generator_type(generator)
    if name not in PARAMETER_SETS:
        raise UsageError(f"set of parameters {name}: {suggestion(name, PARAMETER_SETS)}")
    if dtype not in kind.dtypes:
        raise UsageError(f"{generator} has no dtype {dtype}; it has {', '.join(kind.dtypes)}")
    return list(PARAMETER_SETS[name](generator, dtype))


PARAMETER_SETS: dict[str, ParameterSet] = {"seed002": seed002, "hopper": hopper}
