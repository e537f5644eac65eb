"""What the template of our own kernels is filled with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hillclimb.harness.gemm.families.point import SLICE_BYTES
from hillclimb.harness.gemm.families.warpgroup_point import (
    MAX_REGISTERS,
    PRODUCER_REGISTERS,
    WarpgroupPoint,
)
from hillclimb.harness.gemm.families.warpgroup_rules import (
    FLEXIBLE_FORMS,
    MAX_GROUPS,
    STAGING_BYTES,
    exchange_bytes,
    room,
)
from hillclimb.harness.gemm.shape import ITEM_BYTES, UNSCALED, Dtype, stored

INSTRUCTION_BYTES = 32
"""Of a row, along K, that one instruction of the tensor cores takes."""

PTX_TYPES: dict[Dtype, str] = {"bf16": "bf16", "f16": "f16", "fp8": "e4m3"}
MAP_TYPES: dict[Dtype, str] = {"bf16": "BFLOAT16", "f16": "FLOAT16", "fp8": "UINT8"}
RESULTS: dict[Dtype, str] = {"bf16": "__nv_bfloat16", "f16": "__half", "fp8": "__nv_bfloat16"}
PAIRS: dict[Dtype, str] = {
    "bf16": "__floats2bfloat162_rn",
    "f16": "__floats2half2_rn",
    "fp8": "__floats2bfloat162_rn",
}
"""Two sums to two results, rounded."""


def values(points: Sequence[WarpgroupPoint]) -> Mapping[str, object]:
    """Of one file. All of its kernels have the same dtype, and are grouped, flexible, or neither."""
    first = points[0]
    return {
        **device_values(
            first.dtype,
            sorted({point.own_columns for point in points}),
            is_grouped=first.is_grouped,
            is_flexible=first.is_flexible,
        ),
        "map_type": MAP_TYPES[stored(first.dtype)],
        "kernels": [_kernel(point) for point in points],
    }


def device_values(
    dtype: Dtype, columns: Sequence[int], *, is_grouped: bool = False, is_flexible: bool = False
) -> Mapping[str, object]:
    """Of the device's side alone, with the instructions of so many columns."""
    return {
        "instructions": [_instruction(count, dtype) for count in columns],
        "item_bytes": ITEM_BYTES[dtype],
        "result": RESULTS[stored(dtype)],
        "pair": PAIRS[stored(dtype)],
        "is_scaled": dtype in UNSCALED,
        "is_grouped": is_grouped,
        "max_groups": MAX_GROUPS,
        "is_flexible": is_flexible,
        "split_choices": sorted({splits for splits, _ in FLEXIBLE_FORMS}),
    }


def _instruction(columns: int, dtype: Dtype) -> Mapping[str, object]:
    """wgmma of 64 rows and so many columns: its sums, descriptors and flags are numbered in this order."""
    sums = columns // 2
    transposed = "" if ITEM_BYTES[dtype] == 1 else ", 0, 0"
    kind = PTX_TYPES[stored(dtype)]
    return {
        "columns": columns,
        "kind": f"m64n{columns}k{INSTRUCTION_BYTES // ITEM_BYTES[dtype]}.f32.{kind}.{kind}",
        "sums": ", ".join(f"%{at}" for at in range(sums)),
        "rest": f"%{sums}, %{sums + 1}, p, 1, 1{transposed}",
        "flag": f"%{sums + 2}",
        "outputs": ", ".join(f'"+f"(sums[{at}])' for at in range(sums)),
    }


def _kernel(point: WarpgroupPoint) -> Mapping[str, object]:
    _, columns, inner = point.tile
    slices = inner * ITEM_BYTES[point.dtype] // SLICE_BYTES
    gives_registers = point.registers < MAX_REGISTERS
    numbers = (
        *(
            *point.consumers,
            point.row_blocks,
            columns,
            slices,
            point.splits,
            point.is_persistent or point.is_flexible,
            point.blocks,
        ),
        *((PRODUCER_REGISTERS, point.registers) if gives_registers else (0, 0)),
        *(room(point), STAGING_BYTES, exchange_bytes(point)),
    )
    return {"name": point.name, "plan": ", ".join(str(int(number)) for number in numbers)}
