"""When further calls end, and what the gate says of a GPU's memory; at work it is in test_judge.py and tests/poison."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hillclimb.harness.errors import CandidateFault, MachineError
from hillclimb.harness.judge.gate import CallLimit, GpuMemory
from hillclimb.harness.records import Reason

GIB = 1 << 30


class Gpu:
    """140 GiB, of which a candidate and somebody else hold something."""

    candidate = other = 0

    def __init__(self) -> None:
        self.card = GpuMemory(self.spare)

    def spare(self) -> int:
        return (140 - self.candidate - self.other) * GIB

    def close(self) -> None:
        """The candidate's end."""
        self.candidate = 0

    def look(self, *, candidate: int, other: int = 0) -> None:
        self.candidate, self.other = candidate, other
        self.card.check_retained(cast("Any", self))


def test_a_candidate_may_keep_half_of_the_memory() -> None:
    gpu = Gpu()
    gpu.look(candidate=70)
    assert gpu.candidate, "it is not ended"


def test_a_candidate_that_keeps_more_is_refused_by_name() -> None:
    """Whenever it took it: what was spare is known from before the first candidate."""
    gpu = Gpu()
    for _ in range(2):
        with pytest.raises(CandidateFault, match="keeps 100 of the GPU's 140 GiB") as fault:
            gpu.look(candidate=100)
        assert fault.value.reason is Reason.OUT_OF_MEMORY


def test_what_somebody_else_took_is_not_held_against_a_candidate() -> None:
    gpu = Gpu()
    with pytest.raises(MachineError, match="something else on this machine took 101 of the GPU's 140 GiB"):
        gpu.look(candidate=1, other=100)


def test_a_tenant_that_stays_stops_one_candidate_alone() -> None:
    gpu = Gpu()
    with pytest.raises(MachineError):
        gpu.look(candidate=1, other=100)
    gpu.look(candidate=20, other=100)
    with pytest.raises(CandidateFault, match="keeps 30 of the GPU's 40 GiB"):
        gpu.look(candidate=30, other=100)
    gpu.look(candidate=60)
    with pytest.raises(CandidateFault, match="keeps 75 of the GPU's 80 GiB"):
        gpu.look(candidate=135)


def test_further_calls_end_early_after_the_least_of_them_and_not_before_their_time() -> None:
    limit = CallLimit(calls=100, least=10, seconds=5.0)
    assert not limit.is_reached(9, 1000.0)
    assert not limit.is_reached(99, 5.0)
    assert limit.is_reached(10, 5.1)
