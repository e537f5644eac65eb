"""Why a kernel of our own cannot be built, or would be of no use, told before a compiler is asked."""

from __future__ import annotations

from hillclimb.harness.gemm.families.point import (
    BOX,
    LEAST_STEPS,
    ROW_BLOCK,
    SHARED_BYTES,
    SLICE_BYTES,
    WARPGROUP,
)
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.shape import ITEM_BYTES

MULTIPROCESSOR_BYTES = 228 << 10
"""Of shared memory, for all thread blocks of a multiprocessor."""

BLOCK_BYTES = 1 << 10
"""That the system keeps of each block."""

RESERVED_BYTES = 2 << 10
"""Of a block: its barriers, and what is lost where the steps begin at a multiple of 1024 bytes."""

MAX_GROUPS = 512
"""Of a grouped product."""

GROUP_BYTES = 8
"""Of a block's shared memory, for each: where its tokens end, and its tiles."""

OTHER_REGISTERS = 40
"""Of a thread, beside its sums."""

FLEXIBLE_REGISTERS, FEW_FLEXIBLE_REGISTERS, FEW_REGISTERS = 80, 48, 96
"""Likewise, of a flexible kernel, which has several ways to finish a tile; fewer where a thread has few."""

INSTRUCTION_REGISTERS = 26
"""Beside the sums of one instruction, of those that a thread has at the start: the compiler goes by these."""

SPLITS = (1, 2, 4, 8)
FLEXIBLE_FORMS = ((1, False), (1, True), (2, False), (4, False))
"""Splits, and whether a block takes more than one tile: how a flexible kernel can be called."""

MAX_WARPGROUPS = 3
STAGING_BYTES = 144 * 64
"""Of a consumer: 64 columns of results on their way out, in rows that are 16 bytes apart."""


def refusal(point: WarpgroupPoint) -> str:
    """Empty for a kernel that is worth a compiler's time."""
    if point.is_flexible:
        return _flexible_refusal(point)
    for rule in (_layout, _sharing, _registers, _memory):
        if told := rule(point):
            return told
    return ""


def flexible_forms(point: WarpgroupPoint) -> list[WarpgroupPoint]:
    """The kernels that a flexible one is, as it is called."""
    return [point.fixed(splits, is_persistent=is_persistent) for splits, is_persistent in FLEXIBLE_FORMS]


def _flexible_refusal(point: WarpgroupPoint) -> str:
    if point.splits > 1 or point.is_persistent or point.is_grouped:
        return "a flexible kernel is of single products, and has neither splits nor a number of tiles"
    if told := next((told for form in flexible_forms(point) if (told := refusal(form))), ""):
        return told
    other = FEW_FLEXIBLE_REGISTERS if point.registers <= FEW_REGISTERS else FLEXIBLE_REGISTERS
    if point.sums > point.registers - other:
        return f"{point.sums} sums a thread, and all ways to add them, hardly fit into its {point.registers} registers"
    return ""


def steps(point: WarpgroupPoint) -> int:
    """That fit into shared memory."""
    return (
        room(point) - (point.warpgroups * STAGING_BYTES if point.is_persistent else 0)
    ) // point.step_bytes


def room(point: WarpgroupPoint) -> int:
    """Bytes of shared memory of a block, without what it cannot use."""
    reserved = RESERVED_BYTES + (MAX_GROUPS * GROUP_BYTES if point.is_grouped else 0)
    return min(SHARED_BYTES, MULTIPROCESSOR_BYTES // point.blocks - BLOCK_BYTES) - reserved


def _layout(point: WarpgroupPoint) -> str:
    rows, columns, inner = point.tile
    down, across = (ROW_BLOCK * point.consumers[0], 8 * point.consumers[1])
    if rows % down or columns % across:
        return f"its consumers take rows in steps of {down} and columns in steps of {across}, not {rows}x{columns}"
    if max(rows, columns) > BOX:
        return f"TMA brings {BOX} rows at once, not {max(rows, columns)}"
    if inner * ITEM_BYTES[point.dtype] % SLICE_BYTES:
        return f"a step along K has a multiple of {SLICE_BYTES} bytes, not {inner} elements"
    return ""


def _sharing(point: WarpgroupPoint) -> str:
    if point.splits not in SPLITS:
        return f"K is split in {', '.join(map(str, SPLITS))}, not {point.splits}"
    if point.splits > 1 and point.is_persistent:
        return "blocks that share K take one tile"
    if point.is_grouped and not point.is_persistent:
        return "how many tiles the groups have is known when it runs: a block takes one after another"
    if point.warpgroups > MAX_WARPGROUPS:
        return f"{MAX_WARPGROUPS} consumers are the most, not {point.warpgroups}"
    return ""


def _registers(point: WarpgroupPoint) -> str:
    if point.sums > point.registers - OTHER_REGISTERS:
        return f"{point.sums} sums a thread do not fit into its {point.registers} registers"
    if point.own_columns // 2 + INSTRUCTION_REGISTERS > point.first_registers:
        return (
            f"an instruction of {point.own_columns} columns takes more than {point.first_registers} registers"
        )
    return ""


def _memory(point: WarpgroupPoint) -> str:
    if steps(point) < LEAST_STEPS:
        return f"shared memory holds {steps(point)} of {LEAST_STEPS} steps of {point.step_bytes} bytes"
    if exchange_bytes(point) > room(point):
        return f"shared memory cannot hold {exchange_bytes(point)} bytes of results"
    return ""


def exchange_bytes(point: WarpgroupPoint) -> int:
    """Of shared memory when a tile is done: the parts of others' sums, and results on their way out."""
    if point.is_flexible:
        return max(map(exchange_bytes, flexible_forms(point)))
    part = -(-point.own_columns // 8 // point.splits) * point.row_blocks * WARPGROUP * 16
    return point.warpgroups * ((point.splits - 1) * part + STAGING_BYTES)
