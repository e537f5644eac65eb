"""How fast a GPU can be at all: below one floor a time is a cheat or a wrong contract, the other is worth aiming at.

The hard floor is physics: what memory and tensor cores do at their highest clocks, and every allowance that an honest
kernel could use. The soft floor is what was measured, which a kernel whose data lies in cache may well beat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hillclimb.harness.device.device import RequiredWork
from hillclimb.harness.device.gpu.nvml import ClockLimits

TRANSFERS = 2
"""Transfers a cycle of the memory clock that NVML tells: data moves on both edges of HBM's, GDDR's and LPDDR's."""

UNMOVED_L2_SIZES = 2
"""L2 sizes of a segment's bytes that need not cross the memory bus: what the last calls wrote may still lie in the L2,
and a lead-in may have read as much ahead."""

MIN_FLOPS_SHARE = 0.75
"""Share of a product's FLOPs that need be done: Strassen's rule, twice, does (7/8)^2 of the multiplications."""

RATES: Mapping[tuple[int, int], Mapping[str, int]] = {
    (8, 0): {"float32": 128, "tfloat32": 1024, "bfloat16": 2048, "float16": 2048, "int8": 4096},
    (8, 6): {"float32": 256, "tfloat32": 512, "bfloat16": 1024, "float16": 1024, "int8": 2048},
    (8, 9): {
        "float32": 256,
        "tfloat32": 512,
        "bfloat16": 1024,
        "float16": 1024,
        "float8": 2048,
        "int8": 2048,
    },
    (9, 0): {
        "float32": 256,
        "tfloat32": 2048,
        "bfloat16": 4096,
        "float16": 4096,
        "float8": 8192,
        "int8": 8192,
    },
    (10, 0): {
        "float32": 256,
        "tfloat32": 4096,
        "bfloat16": 8192,
        "float16": 8192,
        "float8": 16384,
        "int8": 16384,
        "float4": 32768,
    },
}
"""Compute capability -> dense floating-point operations a cycle and multiprocessor; a multiplication and an addition
count two. From the vendor's peak rates, e.g. H100 SXM: 989.4 TFLOP/s in bfloat16 = 132 x 1830 MHz x 4096."""


@dataclass(frozen=True)
class PeakRates:
    """What one GPU can do on paper, at its highest clocks."""

    bytes: float
    """Per second, over the memory bus."""
    flops: Mapping[str, float]
    """Per second, by dtype; empty where the architecture is not known here."""
    l2_bytes: int

    @property
    def max_flops(self) -> float:
        """In whatever dtype is fastest; 0 where the architecture is not known."""
        return max(self.flops.values(), default=0.0)


def peak_rates(
    limits: ClockLimits, capability: tuple[int, int], multiprocessors: int, l2_bytes: int
) -> PeakRates:
    """From NVML's highest clocks and bus width, and from CUDA's device properties."""
    cycles = multiprocessors * limits.sm_mhz * 1e6
    return PeakRates(
        bytes=limits.memory_mhz * 1e6 * TRANSFERS * limits.bus_bits / 8,
        flops={dtype: rate * cycles for dtype, rate in RATES.get(capability, {}).items() if cycles},
        l2_bytes=l2_bytes,
    )


def hard_floor_seconds(
    work: RequiredWork, peak: PeakRates, calls: int, cache: Literal["cold", "hot"], dtype: str | None = None
) -> float:
    """Seconds a call that no honest segment of `calls` calls, each on slots of its own, can stay below.

    `dtype` is that of the products where it is known; else the fastest the GPU has. 0 where nothing is known.
    """
    flops = peak.max_flops if dtype is None else peak.flops.get(dtype, peak.max_flops)
    products = MIN_FLOPS_SHARE * work.flops / flops if flops else 0.0
    if cache == "hot" or not peak.bytes:
        return products
    moved = max(0.0, work.bytes - UNMOVED_L2_SIZES * peak.l2_bytes / calls)
    return max(products, moved / peak.bytes)
