"""Why a kernel cannot be built, or would be of no use, told before a compiler is asked.

The rules are those of CUTLASS 4.2 for Hopper: what its static assertions refuse, and what compiles and was then seen to
hang, to be wrong, or to spill.
"""

from __future__ import annotations

from math import gcd

from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.families.point import (
    BOX,
    LEAST_STEPS,
    MAX_CLUSTER,
    RESULT_BYTES,
    SHARED_BYTES,
    WARPGROUP,
)

BARRIER_BYTES = 16
"""Beside each step in flight."""

MAX_SUMS = 208
"""Registers of a thread that may hold sums; it has 240 for all."""

EPILOGUE_COLUMNS = 32


def refusal(point: CollectivePoint) -> str:
    """Empty for a kernel that is worth a compiler's time."""
    return compiler_refusal(point) or _usefulness(point)


def compiler_refusal(point: CollectivePoint) -> str:
    """Why it would not compile."""
    for rule in (_layout, _schedule, _memory):
        if told := rule(point):
            return told
    return ""


def _layout(point: CollectivePoint) -> str:
    rows, columns, _ = point.tile
    if rows % 64 or columns % 16:
        return f"a tile has rows in steps of 64 and columns in steps of 16, not {rows}x{columns}"
    return ""


def _schedule(point: CollectivePoint) -> str:
    if point.schedule == "cooperative" and point.tile[0] < 2 * 64:
        return f"two warpgroups cannot share {point.tile[0]} rows"
    if point.scheduler == "stream_k" and point.schedule != "cooperative":
        return f"stream-K needs the cooperative schedule, not {point.schedule}"
    if point.epilogue == "single" and point.schedule == "cooperative":
        return "one warpgroup cannot write what two have"
    return ""


def _memory(point: CollectivePoint) -> str:
    steps = (SHARED_BYTES - _epilogue_bytes(point)) // (point.step_bytes + BARRIER_BYTES)
    if steps < LEAST_STEPS:
        return f"shared memory holds {steps} of {LEAST_STEPS} steps of {point.step_bytes} bytes"
    return ""


def _usefulness(point: CollectivePoint) -> str:
    """It would compile, and be of no use."""
    rows, columns, _ = point.tile
    blocks = point.cluster[0] * point.cluster[1]
    if max(rows, columns) > BOX:
        return f"TMA brings {BOX} rows at once, not {max(rows, columns)}: it would hang"
    if point.epilogue == "shared" and point.schedule != "cooperative":
        return f"the {point.schedule} schedule has one warpgroup a tile, and two would write it: it would be wrong"
    if blocks > MAX_CLUSTER:
        return (
            f"a cluster has {MAX_CLUSTER} thread blocks at the most where every card gives them, not {blocks}"
        )
    sums = point.tile[0] * point.tile[1] // (WARPGROUP * point.consumers)
    if sums > MAX_SUMS:
        return f"{sums} sums a thread do not fit into its registers"
    return ""


def _epilogue_bytes(point: CollectivePoint) -> int:
    """Two parts of the tile on their way out."""
    rows, columns, _ = point.tile
    part = min(64 * point.consumers, rows) * gcd(EPILOGUE_COLUMNS, columns)
    parts = min(2, rows * columns // part)
    return parts * part * RESULT_BYTES[point.dtype]
