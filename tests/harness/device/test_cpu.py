"""A CPU as a device: the promises of the protocol that hold without a GPU."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hillclimb.harness.case.contract import Work
from hillclimb.harness.channel.dtypes import NUMPY_DTYPES, TORCH_DTYPES
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.device.device import Device
from hillclimb.harness.judge.open_device import open_device
from hillclimb.harness.records import Environment


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_cpu_needs_no_nodes_and_has_no_floor(kind: str) -> None:
    device: Device = open_device(kind)  # type: ignore[arg-type]
    assert (device.kind, device.torch_device, device.nodes(), device.l2_bytes) == ("cpu", "cpu", (), 0)
    assert device.floor_seconds(Work(10**12, 10**12), calls=10) == 0.0
    assert device.free_bytes() > 1 << 20
    assert device.name()
    assert device.identity()
    assert {"python", "torch"} <= set(device.software())
    for act in (device.synchronize, device.reset_settings, device.flush_cache, device.close):
        act()


def test_what_kernels_are_handed() -> None:
    cpu, interpreter = open_device("cpu"), open_device("interpreter")
    assert (cpu.tensors, cpu.dtypes, cpu.max_problem_bytes, cpu.variables()) == (
        "numpy",
        NUMPY_DTYPES,
        math.inf,
        {},
    )
    assert (interpreter.tensors, interpreter.dtypes) == ("torch", TORCH_DTYPES)
    assert interpreter.variables()["TRITON_INTERPRET"] == "1"
    assert interpreter.max_problem_bytes < 1 << 24
    assert interpreter.call_time_factor > cpu.call_time_factor == 1


def test_a_block_is_told_by_the_host_alone() -> None:
    cpu = CpuDevice()
    environment = cpu.environment_since(cpu.read_state(), 0.0)
    assert environment == Environment(steal=environment.steal, others=environment.others)
    assert cpu.disturbances(Environment(steal=0.11)) == ("steal",)
    assert cpu.disturbances(Environment(others=0.51)) == ("other processes",)
    assert cpu.disturbances(Environment(steal=0.1, others=0.5)) == ()


@pytest.mark.slow(2)
def test_ceilings_are_measured_once() -> None:
    cpu = CpuDevice()
    assert cpu.ceilings() is cpu.ceilings()


def test_no_framework_is_imported_for_the_protocol() -> None:
    source = (Path(__file__).parents[3] / "harness/device/device.py").read_text()
    assert "import torch" not in source
