"""Floors from the figures of an H200: 4.8 TB/s, 989 TFLOP/s dense in bfloat16 at 1830 MHz, 132 multiprocessors."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.device.gpu.nvml import ClockLimits
from hillclimb.harness.device.gpu.speed_of_light import PeakRates, hard_floor_seconds, peak_rates

L2 = 62914560
H200 = peak_rates(ClockLimits(sm_mhz=1980, memory_mhz=3201, bus_bits=6144), (9, 0), 132, L2)


@dataclass(frozen=True)
class Done:
    flops: float
    bytes: float


SOFTMAX = Done(flops=5 * 4096 * 4096, bytes=2 * 2 * 4096 * 4096)
GEMM = Done(flops=2 * 8192**3, bytes=3 * 2 * 8192**2)


def test_the_h200s_paper_rates_come_out() -> None:
    assert H200.bytes == pytest.approx(4.917e12, rel=1e-3), (
        "NVML's own clock; the data sheet rounds it to 4.8 TB/s"
    )
    at_boost = peak_rates(ClockLimits(1830, 3201, 6144), (9, 0), 132, L2)
    assert at_boost.flops["bfloat16"] == pytest.approx(989.4e12, rel=1e-3)
    assert at_boost.flops["float8"] == pytest.approx(1978.9e12, rel=1e-3)
    assert H200.flops["bfloat16"] == pytest.approx(1070.5e12, rel=1e-3)


def test_other_chips_data_sheets_come_out() -> None:
    h100 = peak_rates(ClockLimits(1830, 2619, 5120), (9, 0), 132, 50 << 20)
    assert h100.bytes == pytest.approx(3.35e12, rel=0.01)
    a100 = peak_rates(ClockLimits(1410, 1593, 5120), (8, 0), 108, 40 << 20)
    assert a100.bytes == pytest.approx(2.039e12, rel=0.01)
    assert a100.flops["bfloat16"] == pytest.approx(312e12, rel=0.01)
    l40s = peak_rates(ClockLimits(2520, 9001, 384), (8, 9), 142, 96 << 20)
    assert l40s.flops["bfloat16"] == pytest.approx(362e12, rel=0.02)
    assert l40s.bytes == pytest.approx(864e9, rel=0.01)


def test_a_segment_of_many_calls_must_cross_the_bus() -> None:
    floor = hard_floor_seconds(SOFTMAX, H200, calls=220, cache="cold")
    assert floor == pytest.approx(13.5e-6, rel=0.02), "18 us were measured, 15.6 us a copy would take"
    assert floor < 15.6e-6


def test_what_fits_into_the_cache_has_no_floor_of_bytes() -> None:
    assert hard_floor_seconds(SOFTMAX, H200, calls=1, cache="cold") < 1e-6
    assert hard_floor_seconds(SOFTMAX, H200, calls=220, cache="hot") < 1e-6


def test_products_have_a_floor_of_flops_with_room_for_strassen() -> None:
    bf16 = hard_floor_seconds(GEMM, H200, calls=8, cache="cold", dtype="bfloat16")
    assert bf16 == pytest.approx(0.75 * 2 * 8192**3 / 1070.5e12, rel=1e-3)
    assert bf16 < (7 / 8) ** 2 * GEMM.flops / H200.flops["bfloat16"]
    assert hard_floor_seconds(GEMM, H200, calls=8, cache="hot") == pytest.approx(bf16 / 2), (
        "unknown dtype: fastest"
    )
    assert bf16 < 1.395e-3, "what was measured"


def test_an_unknown_architecture_has_no_floor() -> None:
    unknown = peak_rates(ClockLimits(0, 0, 0), (99, 0), 132, L2)
    assert hard_floor_seconds(GEMM, unknown, calls=100, cache="cold") == 0.0


@given(
    flops=st.floats(0, 1e15),
    moved=st.floats(0, 1e12),
    calls=st.integers(1, 10_000),
    clock=st.floats(0.1, 1),
)
def test_nothing_honest_is_below_the_floor(flops: float, moved: float, calls: int, clock: float) -> None:
    """A device that does at most its paper rates, and keeps as much in its cache as it can."""
    rates = PeakRates(H200.bytes * clock, {k: v * clock for k, v in H200.flops.items()}, L2)
    crossing = max(0.0, calls * moved - 2 * L2) / rates.bytes
    seconds = max(crossing / calls, flops / rates.max_flops)
    assert hard_floor_seconds(Done(flops, moved), H200, calls, "cold") <= seconds * (1 + 1e-9)
