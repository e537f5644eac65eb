"""A CPU as the place where kernels run, and what else it was doing while a block was timed."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from typing import Literal

from harness.device import host
from harness.device.ceilings import measure_cpu
from harness.device.device import Reading, Work
from harness.device.host import name, software, take_precedence
from harness.device.seats import Core
from harness.dtypes import NUMPY_DTYPES, TORCH_DTYPES
from harness.records import Ceilings, Environment

__all__ = ["Cpu", "Interpreter", "name", "software", "take_precedence"]

INTERPRETED_BYTES = 1 << 20
"""Most bytes that a problem may move where Triton interprets it, a few thousand times slower than a GPU."""

LENIENCY = 6
"""Times call_seconds that an interpreted call may take: some take seconds, and more where the machine is busy."""


class Cpu:
    """Implements harness.device.device.Device: NumPy arrays on this process's CPUs."""

    kind: Literal["cpu"] = "cpu"
    tensors: Literal["numpy", "torch"] = "numpy"
    torch_device = "cpu"
    dtypes: Collection[str] = NUMPY_DTYPES
    most_bytes: float = math.inf
    leniency: float = 1
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

    def start(self) -> Reading:
        return Reading(host.read_counters())

    def since(
        self, reading: Reading, own_cpu_seconds: float, own_pids: Collection[int] | None = None
    ) -> Environment:
        load = host.load_since(reading.host, own_cpu_seconds)
        return Environment(steal=load.steal, others=load.others)

    def disturbances(self, environment: Environment) -> tuple[str, ...]:
        return host.disturbances(environment.steal, environment.others)

    def ceilings(self) -> Ceilings:
        if self._ceilings is None:
            self._ceilings = measure_cpu()
        return self._ceilings

    def floor_seconds(self, work: Work, calls: int = 1, cache: Literal["cold", "hot"] = "cold") -> float:
        """0: what a CPU's caches hold is nothing that can be proven from outside."""
        return 0.0

    def free_bytes(self) -> int:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def spare_bytes(self) -> int:
        return 0

    def synchronize(self) -> None:
        pass

    def rest(self) -> None:
        pass

    def flush_cache(self) -> None:
        pass

    def quarantine(self, reason: str, pid: int) -> None:
        pass

    def close(self) -> None:
        pass


class Interpreter(Cpu):
    """A CPU on which Triton interprets GPU kernels, handed torch tensors: right or wrong can be told, fast cannot."""

    tensors: Literal["numpy", "torch"] = "torch"
    dtypes: Collection[str] = TORCH_DTYPES
    most_bytes: float = INTERPRETED_BYTES
    leniency: float = LENIENCY

    def name(self) -> str:
        return f"{host.name()}, interpreting GPU kernels"

    def variables(self) -> dict[str, str]:
        return {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
