"""A CPU as the place where kernels run, and what else it was doing while a block was timed."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from typing import Literal

from hillclimb.harness.channel.dtypes import NUMPY_DTYPES, TORCH_DTYPES
from hillclimb.harness.device import host
from hillclimb.harness.device.affinity import Core
from hillclimb.harness.device.cpu.ceilings import measure_cpu
from hillclimb.harness.device.device import DeviceState, RequiredWork
from hillclimb.harness.device.host import name, raise_priority, software
from hillclimb.harness.records import Ceilings, Environment

__all__ = ["CpuDevice", "InterpreterDevice", "name", "raise_priority", "software"]

MAX_INTERPRETED_BYTES = 1 << 20
"""Most bytes that a problem may move where Triton interprets it, a few thousand times slower than a GPU."""

INTERPRETED_TIME_FACTOR = 6
"""Times call_seconds that an interpreted call may take: some take seconds, and more where the machine is busy."""


class CpuDevice:
    """Implements hillclimb.harness.device.device.Device: NumPy arrays on this process's CPUs."""

    kind: Literal["cpu"] = "cpu"
    tensors: Literal["numpy", "torch"] = "numpy"
    torch_device = "cpu"
    dtypes: Collection[str] = NUMPY_DTYPES
    max_problem_bytes: float = math.inf
    call_time_factor: float = 1
    l2_bytes = 0

    def __init__(self) -> None:
        self._ceilings: Ceilings | None = None

    def name(self) -> str:
        return host.name()

    def identity(self) -> str:
        return host.identity()

    def software(self) -> dict[str, str]:
        return host.software()

    def nodes(self) -> tuple[str, ...]:
        return ()

    def variables(self) -> dict[str, str]:
        return {}

    def cores(self) -> Sequence[Core]:
        return ()

    def read_state(self) -> DeviceState:
        return DeviceState(host.read_counters())

    def environment_since(
        self, reading: DeviceState, own_cpu_seconds: float, own_pids: Collection[int] | None = None
    ) -> Environment:
        load = host.load_since(reading.host, own_cpu_seconds)
        return Environment(steal=load.steal, others=load.others)

    def disturbances(self, environment: Environment) -> tuple[str, ...]:
        return host.disturbances(environment.steal, environment.others)

    def ceilings(self) -> Ceilings:
        if self._ceilings is None:
            self._ceilings = measure_cpu()
        return self._ceilings

    def floor_seconds(
        self, work: RequiredWork, calls: int = 1, cache: Literal["cold", "hot"] = "cold"
    ) -> float:
        """0: what a CPU's caches hold is nothing that can be proven from outside."""
        return 0.0

    def free_bytes(self) -> int:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def available_bytes(self) -> int:
        return 0

    def synchronize(self) -> None:
        pass

    def reset_settings(self) -> None:
        pass

    def flush_cache(self) -> None:
        pass

    def quarantine(self, reason: str, pid: int) -> None:
        pass

    def close(self) -> None:
        pass


class InterpreterDevice(CpuDevice):
    """A CPU on which Triton interprets GPU kernels, handed torch tensors: right or wrong can be told, fast cannot."""

    tensors: Literal["numpy", "torch"] = "torch"
    dtypes: Collection[str] = TORCH_DTYPES
    max_problem_bytes: float = MAX_INTERPRETED_BYTES
    call_time_factor: float = INTERPRETED_TIME_FACTOR

    def name(self) -> str:
        return f"{host.name()}, interpreting GPU kernels"

    def variables(self) -> dict[str, str]:
        return {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
