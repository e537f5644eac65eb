"""Poisoned kernels before the real judge on a real GPU: each is called what it is, and the GPU is as before.

One of each kind; `HILLCLIMB_POISON=all` takes every one. Whatever hangs takes its whole budget: 2 s in a later
call, 30 s where it is the first. The whole night is `python -m scripts.experiments.poison_night gpu`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hillclimb.harness.errors import MachineError
from hillclimb.harness.records import Progress, Reason
from tests.poison.hundred import poisons, representatives
from tests.poison.poison import Poison
from tests.poison.ward import Traces, Ward, ward

JUDGED = poisons("gpu") if os.environ.get("HILLCLIMB_POISON") == "all" else representatives("gpu")

KEPT_BYTES = 64 << 20
"""Of the GPU's memory, for what torch and the driver keep in the judge's own context."""

SETTLE_SECONDS = 10.0


@dataclass(frozen=True)
class Clinic:
    """The ward, and how it was before the first poison."""

    ward: Ward
    before: Traces
    used: int
    seconds_per_call: float


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    root = tmp_path_factory.mktemp("ward")
    for folder in (root, root.parent, root.parent.parent):
        folder.chmod(0o755)
    with ward(root, "gpu") as opened:
        assert opened.gate_honest().passed
        seconds = _seconds_per_call(opened)
        yield Clinic(opened, opened.traces(), _used_bytes(opened), seconds)


@pytest.mark.parametrize("poison", JUDGED, ids=[poison.name for poison in JUDGED])
def test_it_is_called_what_it_is_and_nothing_of_it_stays(clinic: Clinic, poison: Poison) -> None:
    started = time.monotonic()
    try:
        found = clinic.ward.take(poison)
        reason, detail = found.reason, found.detail
    except MachineError as error:  # a climb asks fresh judges, then blames it where the incumbent passes
        reason, detail = Reason.BROKE_JUDGE, str(error)
    print(f"{poison.name}: {reason} in {time.monotonic() - started:.1f} s: {detail[:300]}")
    assert reason in poison.expected, f"{reason}: {detail}"
    after = clinic.ward.settle(clinic.before)
    assert not after.orphans_since(clinic.before)
    assert after.descriptors <= clinic.before.descriptors + 4
    assert _settled_bytes(clinic) <= clinic.used + KEPT_BYTES
    honest = clinic.ward.gate_honest()
    assert honest.passed, f"the next honest kernel is {honest.reason}: {honest.detail}"


def test_an_honest_kernel_is_as_fast_as_before(clinic: Clinic) -> None:
    """Last in this file, after all the poison that this process was given."""
    ratio = _seconds_per_call(clinic.ward) / clinic.seconds_per_call
    print(f"time of a call after all poison against before: {ratio:.4f}")
    assert abs(ratio - 1) < 0.01


def _seconds_per_call(opened: Ward) -> float:
    found = opened.judge.compare(opened.incumbent, opened.incumbent, "noise", _ignore)
    return sum(found.seconds_per_call) / 2


def _used_bytes(opened: Ward) -> int:
    from hillclimb.harness.device.gpu.nvml import Nvml

    nvml, uuid = Nvml(), opened.judge.describe().device_id
    try:
        return next(gpu.used_bytes for gpu in nvml.gpus() if gpu.uuid == uuid)
    finally:
        nvml.close()


def _settled_bytes(clinic: Clinic) -> int:
    """Memory in use once it is back to what it was, or after some seconds: the driver takes its time."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (used := _used_bytes(clinic.ward)) > clinic.used + KEPT_BYTES and time.monotonic() < deadline:
        time.sleep(0.2)
    return used


def _ignore(progress: Progress) -> None:
    """Nobody watches."""
