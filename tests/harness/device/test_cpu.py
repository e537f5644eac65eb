"""A CPU as a device: the promises of the protocol that hold without a GPU."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.case.contract import Work
from harness.device.cpu import Cpu
from harness.device.device import Device, open_device
from harness.dtypes import NUMPY_DTYPES, TORCH_DTYPES
from harness.records import Environment


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_cpu_needs_no_nodes_and_has_no_floor(kind: str) -> None:
    device: Device = open_device(kind)  # type: ignore[arg-type]
    assert (device.kind, device.torch_device, device.nodes(), device.l2_bytes) == ("cpu", "cpu", (), 0)
    assert device.floor_seconds(Work(10**12, 10**12), calls=10) == 0.0
    assert device.free_bytes() > 1 << 20
    assert device.name()
    assert device.identity()
    assert {"python", "torch"} <= set(device.software())
    for act in (device.synchronize, device.rest, device.flush_cache, device.close):
        act()


def test_what_kernels_are_handed() -> None:
    cpu, interpreter = open_device("cpu"), open_device("interpreter")
    assert (cpu.tensors, cpu.dtypes, cpu.most_bytes, cpu.variables()) == ("numpy", NUMPY_DTYPES, math.inf, {})
    assert (interpreter.tensors, interpreter.dtypes) == ("torch", TORCH_DTYPES)
    assert interpreter.variables()["TRITON_INTERPRET"] == "1"
    assert interpreter.most_bytes < 1 << 24
    assert interpreter.leniency > cpu.leniency == 1


def test_a_block_is_told_by_the_host_alone() -> None:
    cpu = Cpu()
    environment = cpu.since(cpu.start(), 0.0)
    assert environment == Environment(steal=environment.steal, others=environment.others)
    assert cpu.disturbances(Environment(steal=0.11)) == ("steal",)
    assert cpu.disturbances(Environment(others=0.51)) == ("other processes",)
    assert cpu.disturbances(Environment(steal=0.1, others=0.5)) == ()


def test_ceilings_are_measured_once() -> None:
    cpu = Cpu()
    assert cpu.ceilings() is cpu.ceilings()


def test_no_framework_is_imported_for_the_protocol() -> None:
    source = (Path(__file__).parents[3] / "harness/device/device.py").read_text()
    assert "import torch" not in source
