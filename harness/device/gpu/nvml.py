"""NVIDIA's management library, read and never written: which GPUs there are, who uses them, what their clocks do.

Source: NVML API reference; `pynvml` of the package nvidia-ml-py are its C functions. Nothing here makes a CUDA context,
changes a clock, a power limit or a mode, or resets anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pynvml  # type: ignore[import-untyped]

from hillclimb.harness.device.device import GpuSample
from hillclimb.harness.errors import MachineError, UsageError

Value = TypeVar("Value")

IDLE = pynvml.nvmlClocksEventReasonGpuIdle
REASONS = {
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "application_clocks",
    pynvml.nvmlClocksEventReasonSwPowerCap: "power_cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hw_slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync_boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "sw_thermal",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hw_thermal",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "hw_power_brake",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display_clocks",
}
"""Bits of the mask of clock event reasons; idleness is none that matters."""

COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive_thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
}


@dataclass(frozen=True)
class Gpu:
    """One GPU, as it was when it was looked at."""

    index: int
    """By PCI bus, as nvidia-smi counts and as CUDA does under CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    uuid: str
    minor: int
    """Its node is /dev/nvidia<minor>."""
    name: str
    used_bytes: int
    """Memory that processes hold which do not draw a screen; without the driver's own where it tells that apart."""
    utilization: int
    """Percent of the last sampling period in which a kernel ran; 0 where the driver does not tell."""
    compute_mode: str
    has_mig: bool
    """Whether it is partitioned into instances."""

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name}, {self.uuid})"


@dataclass(frozen=True)
class Occupant:
    """A process that uses a GPU."""

    pid: int
    """In the pid namespace that the driver speaks of, which in a container need not be this one."""
    bytes: int | None
    """None where the driver does not tell."""

    def __str__(self) -> str:
        held = "unknown memory" if self.bytes is None else f"{self.bytes >> 20} MiB"
        return f"pid {self.pid} ({process_name(self.pid)}, {held})"


@dataclass(frozen=True)
class ClockLimits:
    """The highest clocks a GPU can run at, in MHz, and its memory's width in bits; 0 where the driver does not tell."""

    sm_mhz: int
    memory_mhz: int
    bus_bits: int


class Nvml:
    """An open connection to the driver. Raises UsageError where there is no driver or no GPU, else MachineError."""

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise UsageError(no_gpu_message(f"NVML says: {error}")) from error
        if count == 0:
            raise UsageError(no_gpu_message("the driver runs, but sees no GPU"))
        handles = [_ask(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
        self._handles = {str(_ask(pynvml.nvmlDeviceGetUUID, handle)): handle for handle in handles}

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(_look_at(*each) for each in enumerate(self._handles.items()))

    def occupants(self, uuid: str) -> tuple[Occupant, ...] | None:
        """Processes with a CUDA context on it; None where the driver does not tell."""
        handle = self._handles[uuid]
        found: Any = _maybe(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))
        if found is None:
            return None
        return tuple(Occupant(int(each.pid), each.usedGpuMemory) for each in found)

    def sample(self, uuid: str) -> GpuSample:
        handle = self._handles[uuid]
        milliwatts = _maybe(lambda: int(pynvml.nvmlDeviceGetPowerUsage(handle)))
        mask = _maybe(lambda: int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
        return GpuSample(
            sm_mhz=_maybe(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))),
            memory_mhz=_maybe(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM))),
            celsius=_maybe(lambda: int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))),
            watts=None if milliwatts is None else round(milliwatts / 1000),
            throttle=None if mask is None else throttle_reasons(mask),
        )

    def limits(self, uuid: str) -> ClockLimits:
        handle = self._handles[uuid]
        return ClockLimits(
            sm_mhz=_maybe(lambda: int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))) or 0,
            memory_mhz=_maybe(lambda: int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)))
            or 0,
            bus_bits=_maybe(lambda: int(pynvml.nvmlDeviceGetMemoryBusWidth(handle))) or 0,
        )

    def driver(self) -> str:
        return str(_ask(pynvml.nvmlSystemGetDriverVersion))

    def close(self) -> None:
        _ask(pynvml.nvmlShutdown)


def no_gpu_message(why: str) -> str:
    return (
        f"device: cuda needs an NVIDIA GPU; none found ({why}); use `hillclimb check` here, which compiles and "
        "interprets, or run on a machine with a GPU and its driver"
    )


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Names of the bits that are set, lowest first; one that has no name here is told as a number."""
    bits = (1 << place for place in range(mask.bit_length()))
    return tuple(REASONS.get(bit, hex(bit)) for bit in bits if mask & bit and bit != IDLE)


def process_name(pid: int) -> str:
    """The program's name; `not visible here` where this pid namespace has no such process."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "not visible here"
    return "".join(c if c.isprintable() else "?" for c in name) or "unnamed"


def _look_at(index: int, named: tuple[str, Any]) -> Gpu:
    uuid, handle = named
    return Gpu(
        index=index,
        uuid=uuid,
        minor=_ask(pynvml.nvmlDeviceGetMinorNumber, handle),
        name=_ask(pynvml.nvmlDeviceGetName, handle),
        used_bytes=max(0, _used_bytes(handle) - _drawn_bytes(handle)),
        utilization=_maybe(lambda: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)) or 0,
        compute_mode=_compute_mode(handle),
        has_mig=bool(_maybe(lambda: int(pynvml.nvmlDeviceGetMigMode(handle)[0]))),
    )


def _used_bytes(handle: Any) -> int:
    # version 2 keeps the driver's reserved memory out of `used`; drivers before 510 have version 1 only
    newer = _maybe(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used))
    return int(_ask(pynvml.nvmlDeviceGetMemoryInfo, handle).used) if newer is None else newer


def _drawn_bytes(handle: Any) -> int:
    """Memory of processes that draw a screen: on a workstation there always are some."""
    found: Any = _maybe(lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle))
    return sum(each.usedGpuMemory or 0 for each in found or ())


def _compute_mode(handle: Any) -> str:
    mode = _maybe(lambda: int(pynvml.nvmlDeviceGetComputeMode(handle)))
    return "default" if mode is None else COMPUTE_MODES.get(mode, str(mode))


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """The answer to what every driver answers."""
    try:
        return question(*arguments)
    except pynvml.NVMLError as error:
        raise MachineError(
            f"NVML: {question.__name__}: {error}; if `nvidia-smi` fails as well, the driver or the GPU does"
        ) from error


def _maybe(question: Callable[[], Value]) -> Value | None:
    """The answer, or None where this driver or GPU has none. A GPU that was lost is a MachineError."""
    try:
        return question()
    except (
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_NoPermission,
        pynvml.NVMLError_InvalidArgument,
        pynvml.NVMLError_ArgumentVersionMismatch,
    ):
        return None
    except pynvml.NVMLError as error:
        raise MachineError(
            f"NVML: {error}; if `nvidia-smi` fails as well, the driver or the GPU does"
        ) from error
