"""Opens the device that a case is for."""

from __future__ import annotations

from typing import Literal

from hillclimb.harness.device.device import Device


def open_device(kind: Literal["cpu", "interpreter", "cuda"]) -> Device:
    """The device of that kind, taken for this process alone where it is a GPU.

    Raises UsageError where there is no such device, MachineError where it is busy, locked or in quarantine.
    """
    if kind == "cuda":
        from hillclimb.harness.device.gpu.gpu import CudaDevice

        return CudaDevice()
    from hillclimb.harness.device.cpu.cpu import CpuDevice, InterpreterDevice

    return CpuDevice() if kind == "cpu" else InterpreterDevice()
