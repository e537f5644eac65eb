"""One NVIDIA GPU as the place where kernels run, held for this judge alone.

Its clocks, power and modes are read and never set, and it is never reset. CUDA is taken up when a `Cuda` is made, and
not before: a process that forked or chose another GPU earlier must not have a context.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from cuda.bindings import driver  # type: ignore[import-untyped]

from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.device import host
from hillclimb.harness.device.affinity import Core, cores_of_judge, list_cores
from hillclimb.harness.device.device import DeviceState, RequiredWork
from hillclimb.harness.device.gpu import contamination
from hillclimb.harness.device.gpu.gpu_ceilings import load_or_measure, measure_gpu
from hillclimb.harness.device.gpu.guard import acquire_gpu
from hillclimb.harness.device.gpu.nvml import Nvml
from hillclimb.harness.device.gpu.speed_of_light import PeakRates, hard_floor_seconds, peak_rates
from hillclimb.harness.device.gpu.state_files import shared_folder, state_folder
from hillclimb.harness.errors import MachineError
from hillclimb.harness.records import Ceilings, Environment

NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Device nodes besides the GPU's own."""

FLUSHED_L2_SIZES = 2
"""L2 sizes that are written to evict all of it."""

L2_LIMIT = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
L2_MOST = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE

NVCC_RELEASE = re.compile(r"\bV(\d[\d.]*)")


class CudaDevice:
    """Implements hillclimb.harness.device.device.Device. `close` gives the GPU back, and the end of the process does.

    Raises UsageError where there is no GPU or none of those named, MachineError where none may be had. Sets
    CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER of this process.
    """

    kind: Literal["cuda"] = "cuda"
    tensors: Literal["cuda"] = "cuda"
    torch_device = "cuda:0"
    dtypes: Collection[str] = TORCH_DTYPES
    max_problem_bytes = float("inf")
    call_time_factor = 1.0

    def __init__(self) -> None:
        _expect_no_context()
        self._nvml = Nvml()
        self._ceilings: Ceilings | None = None
        self._cpus = os.sched_getaffinity(0)  # now: in a duel this process is on one core
        with ExitStack() as undo:
            undo.callback(self._nvml.close)
            self._hold = acquire_gpu(self._nvml, os.environ, shared_folder())
            undo.callback(self._hold.lock.close)
            self._gpu = self._hold.gpu
            os.environ.update(self.variables())
            self._properties = _take_up(self._gpu.uuid)
            self.l2_bytes = int(self._properties.L2_cache_size)
            self._flush = torch.empty(
                FLUSHED_L2_SIZES * self.l2_bytes, dtype=torch.uint8, device=self.torch_device
            )
            self._has_persisting_l2 = _attribute(L2_MOST) > 0
            self._undo = undo.pop_all()

    def name(self) -> str:
        return self._gpu.name

    def identity(self) -> str:
        return self._gpu.uuid

    @cached_property
    def _software(self) -> dict[str, str]:
        found = {
            **host.software((*host.PACKAGES, "cuda-bindings", "nvidia-ml-py")),
            "driver": self._nvml.driver(),
            "cuda": str(torch.version.cuda),
        }
        nvcc = nvcc_version()
        return {**found, "nvcc": nvcc} if nvcc else found

    def software(self) -> dict[str, str]:
        return dict(self._software)

    def nodes(self) -> tuple[str, ...]:
        return device_nodes(self._gpu.minor, Path("/dev"))

    def variables(self) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": self._gpu.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def cores(self) -> Sequence[Core]:
        return self._cores

    @cached_property
    def _cores(self) -> Sequence[Core]:
        return cores_of_judge(list_cores(self._cpus), self._gpu.index, len(self._nvml.gpus()))

    def read_state(self) -> DeviceState:
        return DeviceState(host.read_counters(), self._nvml.sample(self._gpu.uuid))

    def environment_since(
        self, reading: DeviceState, own_cpu_seconds: float, own_pids: Collection[int] | None = None
    ) -> Environment:
        load = host.load_since(reading.host, own_cpu_seconds)
        end = self._nvml.sample(self._gpu.uuid)
        occupants = self._nvml.occupants(self._gpu.uuid)
        pids = None if occupants is None else [occupant.pid for occupant in occupants]
        tenants = contamination.count_tenants(pids, os.getpid(), own_pids)
        return contamination.block_environment(load, reading.gpu or end, end, tenants)

    def disturbances(self, environment: Environment) -> tuple[str, ...]:
        return contamination.disturbances(environment, len(self._cpus))

    def ceilings(self) -> Ceilings:
        if self._ceilings is None:
            path = state_folder() / f"ceilings-{self._gpu.uuid}.json"
            self._ceilings = load_or_measure(path, self._gpu.uuid, self._nvml.driver(), self.measure)
        return self._ceilings

    def measure(self) -> Ceilings:
        """Measure the ceilings now, whatever was kept."""
        return measure_gpu(self.torch_device, self.l2_bytes, self.free_bytes())

    @cached_property
    def peak(self) -> PeakRates:
        """What this GPU can do on paper."""
        found = self._properties
        return peak_rates(
            self._nvml.limits(self._gpu.uuid),
            (found.major, found.minor),
            found.multi_processor_count,
            self.l2_bytes,
        )

    def floor_seconds(
        self, work: RequiredWork, calls: int = 1, cache: Literal["cold", "hot"] = "cold"
    ) -> float:
        return hard_floor_seconds(work, self.peak, calls, cache)

    def free_bytes(self) -> int:
        """What the driver has free; what torch keeps in its cache is free for torch alone."""
        return int(torch.cuda.mem_get_info(self.torch_device)[0])

    def available_bytes(self) -> int:
        return self.free_bytes() + torch.cuda.memory_reserved(self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def reset_settings(self) -> None:
        """No line of the L2 stays persisting, and this context may set none aside.

        The lines are the GPU's, whoever made them persist; the limit is this context's, and a candidate has its own.
        Raises MachineError.
        """
        if self._has_persisting_l2:
            _check("cuCtxSetLimit", driver.cuCtxSetLimit(L2_LIMIT, 0))
            _check("cuCtxResetPersistingL2Cache", driver.cuCtxResetPersistingL2Cache())

    def flush_cache(self) -> None:
        """Queued, not awaited."""
        self._flush.fill_(0x5A)

    def quarantine(self, reason: str, pid: int) -> None:
        self._hold.quarantine.impose(reason, pid)

    def close(self) -> None:
        self._flush = torch.empty(0)
        torch.cuda.empty_cache()
        self._undo.close()


def device_nodes(minor: int, folder: Path) -> tuple[str, ...]:
    """Of the one GPU, and those that all share; raises MachineError where the GPU's own is missing.

    Of nvidia-caps/, those that anybody may open: the others configure MIG instances, which no candidate needs.
    """
    own = folder / f"nvidia{minor}"
    if not own.is_char_device():
        raise MachineError(
            f"{own} is missing or no device, though the driver names it; run where containers are given GPUs whole"
        )
    shared = [folder / name for name in NODES]
    capabilities = sorted((folder / "nvidia-caps").glob("*"))
    return tuple(
        str(node)
        for node in (own, *shared, *(c for c in capabilities if _is_open_to_all(c)))
        if node.is_char_device()
    )


def nvcc_version() -> str:
    """Of the nvcc that kernels of CUDA C++ would be compiled by; empty where there is none."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    if nvcc is None:
        return ""
    try:
        done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = NVCC_RELEASE.search(done.stdout)
    return found.group(1) if found else ""


def _is_open_to_all(node: Path) -> bool:
    return bool(node.stat().st_mode & stat.S_IROTH)


def _expect_no_context() -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise MachineError(
            "CUDA is in use in this process already; take up the GPU before any CUDA tensor is made"
        )


def _take_up(uuid: str) -> Any:
    """Make this process's context on the GPU; its properties. Raises MachineError where CUDA has another or none."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.zeros(1, device=CudaDevice.torch_device)
        found = torch.cuda.get_device_properties(0)
    except (RuntimeError, AssertionError) as error:
        raise MachineError(
            f"CUDA does not start on {uuid} ({str(error).splitlines()[0]}); if it does for other programs, see that "
            "torch was built for this driver"
        ) from error
    if str(found.uuid).removeprefix("GPU-").lower() != uuid.removeprefix("GPU-").lower():
        raise MachineError(
            f"CUDA was started on GPU-{found.uuid} before {uuid} could be chosen; set CUDA_VISIBLE_DEVICES={uuid} for "
            "the whole program"
        )
    return found


def _attribute(which: Any) -> int:
    device = _check("cuDeviceGet", driver.cuDeviceGet(0))
    return int(_check("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(which, device)))


def _check(call: str, result: tuple[Any, ...]) -> Any:
    """The call's value, if it has one. Raises MachineError."""
    error, *values = result
    if int(error) != 0:
        raise MachineError(
            f"{call}: {driver.CUresult(error).name}; the judge's own context is broken, start it anew"
        )
    return values[0] if values else None
