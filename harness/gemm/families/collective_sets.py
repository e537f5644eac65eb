"""Named sets of parameters: the manifest of what may be generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from hillclimb.harness.gemm.families.collective_point import (
    CollectiveGenerator,
    CollectivePoint,
    EpilogueSchedule,
    KernelSchedule,
    TileScheduler,
)
from hillclimb.harness.gemm.families.point import CLUSTERS, SLICE_BYTES, RowOperand
from hillclimb.harness.gemm.shape import ITEM_BYTES, UNSCALED, Dtype

SIDES, INNERS = (64, 128, 256), (32, 64, 128, 256)
ALL_CLUSTERS = (*CLUSTERS, (8, 1), (1, 8), (4, 4))
SCHEDULES: tuple[KernelSchedule, ...] = ("basic", "pingpong", "cooperative")
EPILOGUES: tuple[EpilogueSchedule, ...] = ("single", "shared")
SCHEDULERS: tuple[TileScheduler, ...] = ("persistent", "stream_k")
OPERANDS: tuple[RowOperand, ...] = ("tokens", "features")

Schedules = tuple[KernelSchedule, EpilogueSchedule, TileScheduler]

PINGPONG_COLUMNS = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 256)
COOPERATIVE_COLUMNS = (64, 96, 112, 128, 144, 160, 176, 192, 224, 256)

STOCK_TILES = ((64, 256), (128, 128), (128, 256), (256, 128), (256, 256))
STOCK_CLUSTERS = ((1, 2), (2, 1))
STOCK_WAYS: tuple[Schedules, ...] = (
    ("basic", "single", "persistent"),
    ("pingpong", "single", "persistent"),
    ("cooperative", "shared", "persistent"),
    ("cooperative", "shared", "stream_k"),
)


def generator(dtype: Dtype) -> CollectiveGenerator:
    """The type that has kernels of it."""
    return "scaled_mm" if dtype in UNSCALED else "simple_gemm"


def seed002(dtype: Dtype) -> Iterator[CollectivePoint]:
    """The full grid of powers of two: 3888 points, of which less than half can be built."""
    for rows, columns, inner, cluster, schedule, epilogue, scheduler in product(
        *(SIDES, SIDES, INNERS, ALL_CLUSTERS, SCHEDULES, EPILOGUES, SCHEDULERS)
    ):
        yield CollectivePoint(
            generator=generator(dtype),
            dtype=dtype,
            tile=(rows, columns, inner),
            cluster=cluster,
            schedule=schedule,
            epilogue=epilogue,
            scheduler=scheduler,
        )


def hopper(dtype: Dtype) -> Iterator[CollectivePoint]:
    """Both operands on M, columns in steps of 16, clusters of up to four."""
    pingpong = product((64, 128), PINGPONG_COLUMNS, SCHEDULES[1:2], EPILOGUES[:1], SCHEDULERS[:1])
    cooperative = product((128, 256), COOPERATIVE_COLUMNS, SCHEDULES[2:], EPILOGUES[1:], SCHEDULERS)
    ways = (*pingpong, *cooperative)
    for rows, cluster, (side, columns, schedule, epilogue, scheduler) in product(OPERANDS, CLUSTERS, ways):
        yield _point(dtype, rows, (side, columns), cluster, (schedule, epilogue, scheduler))


def stock(dtype: Dtype) -> Iterator[CollectivePoint]:
    """The tiles and clusters that cutlass_library 4.2 takes for 16-bit operands where kernels are named.

    It puts the features on M; here either operand is. Its kernels of the basic schedule write without shared memory;
    these write by TMA.
    """
    for rows, tile, cluster, way in product(OPERANDS, STOCK_TILES, STOCK_CLUSTERS, STOCK_WAYS):
        yield _point(dtype, rows, tile, cluster, way)


def _point(
    dtype: Dtype, rows: RowOperand, tile: tuple[int, int], cluster: tuple[int, int], way: Schedules
) -> CollectivePoint:
    schedule, epilogue, scheduler = way
    return CollectivePoint(
        generator=generator(dtype),
        dtype=dtype,
        tile=(*tile, SLICE_BYTES // ITEM_BYTES[dtype]),
        cluster=cluster,
        schedule=schedule,
        epilogue=epilogue,
        scheduler=scheduler,
        rows=rows,
    )


COLLECTIVE_SETS: dict[str, Callable[[Dtype], Iterator[CollectivePoint]]] = {
    "seed002": seed002,
    "hopper": hopper,
    "stock": stock,
}
