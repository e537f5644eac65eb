"""The place where kernels run, as the judge asks for it: a CPU, a CPU that interprets GPU kernels, or one GPU.

Nothing here imports a framework; `open_device` imports what the kind asked for needs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from hillclimb.harness.device.affinity import Core
from hillclimb.harness.device.host import CpuCounters
from hillclimb.harness.records import Ceilings, Environment


class RequiredWork(Protocol):
    """What one call must do at the least."""

    @property
    def flops(self) -> float:
        """Floating-point operations."""

    @property
    def bytes(self) -> float:
        """Bytes read once plus written once."""


@dataclass(frozen=True)
class DeviceState:
    """The state of host and GPU when a block began."""

    host: CpuCounters
    gpu: GpuSample | None = None


class Device(Protocol):
    """What a judge asks of the place where kernels run. Made by `open_device`, given back with `close`."""

    @property
    def kind(self) -> Literal["cpu", "cuda"]: ...

    @property
    def tensors(self) -> Literal["numpy", "torch", "cuda"]:
        """What a kernel is handed: NumPy arrays, torch tensors on the host, or torch tensors on the GPU."""

    @property
    def torch_device(self) -> str:
        """Torch's name of it, for the judge's own tensors."""

    @property
    def dtypes(self) -> Collection[str]:
        """Torch's names of the dtypes that kernels can be handed."""

    @property
    def max_problem_bytes(self) -> float:
        """Problems that move more are not run here; infinite but where kernels are interpreted."""

    @property
    def call_time_factor(self) -> float:
        """How many times the case's call_seconds a call may take here: 1 but where kernels are interpreted."""

    @property
    def l2_bytes(self) -> int:
        """Size of the cache that all of the device shares; 0 where it does not matter."""

    def name(self) -> str: ...

    def identity(self) -> str:
        """The GPU's UUID, or the machine's id."""

    def software(self) -> dict[str, str]:
        """Versions of everything a result may depend on."""

    def nodes(self) -> tuple[str, ...]:
        """Device nodes that a sandbox must grant its candidate."""

    def variables(self) -> dict[str, str]:
        """Environment that a candidate needs to find this device, and no other."""

    def cores(self) -> Sequence[Core]:
        """Of the host, those that duels on this device are seated on; none where the system is to choose."""

    def read_state(self) -> DeviceState:
        """Taken when a block begins."""

    def environment_since(
        self, reading: DeviceState, own_cpu_seconds: float, own_pids: Collection[int] | None = None
    ) -> Environment:
        """What else happened since; `own_cpu_seconds` is what judge and candidates used meanwhile themselves.

        `own_pids` are the processes that may use the GPU; None means this process and all that descend from it.
        """

    def disturbances(self, environment: Environment) -> tuple[str, ...]:
        """What else happened during a block that should be measured again for it, in a few words each."""

    def ceilings(self) -> Ceilings:
        """What the device was measured to do at its best; measured when first asked for."""

    def floor_seconds(
        self, work: RequiredWork, calls: int = 1, cache: Literal["cold", "hot"] = "cold"
    ) -> float:
        """Seconds that no call of a segment of `calls` can be shorter than; 0 where none is known."""

    def free_bytes(self) -> int:
        """Memory that can still be allocated for tensors."""

    def available_bytes(self) -> int:
        """Of a GPU's memory, what candidates have left: what is free, and what the judge keeps; 0 elsewhere."""

    def synchronize(self) -> None:
        """Wait for all work of this process."""

    def reset_settings(self) -> None:
        """Take back what a candidate may have left set on the device."""

    def flush_cache(self) -> None:
        """Evict everything from the shared cache."""

    def quarantine(self, reason: str, pid: int) -> None:
        """Let no judge use this device until a person has looked: process `pid` hangs on it."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class GpuSample:
    """What a GPU's clocks did at one moment; None where the driver does not tell. NVML renews most of it 10 times a
    second or so, so a block of a few milliseconds begins and ends with the same figures."""

    sm_mhz: int | None
    memory_mhz: int | None
    celsius: int | None
    watts: int | None
    throttle: tuple[str, ...] | None
