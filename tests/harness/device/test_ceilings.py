"""Ceilings are measured in well under a second or so, and leave torch as it was."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from hillclimb.harness.device.cpu import ceilings
from hillclimb.harness.device.cpu.ceilings import last_level_cache_bytes, measure_cpu


@pytest.mark.slow(2)
def test_a_cpu_is_measured_on_all_its_cpus_and_torch_is_left_as_it_was() -> None:
    torch.set_num_threads(1)
    found = measure_cpu()
    assert torch.get_num_threads() == 1
    assert 1e8 < found.flops < 1e15
    assert 1e7 < found.bytes < 1e14
    cpus = len(os.sched_getaffinity(0))
    assert f"on {cpus} thread{'s' if cpus > 1 else ''}" in found.how
    assert "torch.mm of" in found.how
    assert "tensor.copy_ between arrays of" in found.how


def test_the_thread_count_comes_back_after_a_failure() -> None:
    torch.set_num_threads(1)
    with pytest.raises(RuntimeError, match="no memory"), ceilings._threads(2):
        assert torch.get_num_threads() == 2
        raise RuntimeError("no memory")
    assert torch.get_num_threads() == 1


def test_the_best_run_counts() -> None:
    pauses = iter([0.0, 0.3, 0.02, 0.3])
    spent: list[float] = []

    def work() -> None:
        spent.append(next(pauses))
        time.sleep(spent[-1])

    assert 0.02 <= ceilings._best(work) < 0.3
    assert len(spent) == 4, "one that is not timed, and three"


@pytest.mark.parametrize(("cache", "array"), [(0, 64), (20, 80), (32, 128), (384, 128)])
def test_the_copied_arrays_outgrow_the_cache_within_limits(cache: int, array: int) -> None:
    assert ceilings.array_bytes(cache << 20) == array << 20


def test_the_cache_is_found_where_linux_tells_it() -> None:
    if not list(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")):
        pytest.skip("this kernel tells no cache sizes")
    assert last_level_cache_bytes() >= 1 << 15
