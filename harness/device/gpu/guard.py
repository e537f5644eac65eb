"""Which GPU a judge may have: chosen by UUID, locked for it alone, idle, in a mode that works, not in quarantine.

The choosing is the same as that of scripts/selected-gpu.sh: HILLCLIMB_GPU, an index or the beginning of a UUID; else
the GPUs that CUDA_VISIBLE_DEVICES names; else all. Of several, the idlest that may be had.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.device.gpu.lock import GpuLock
from hillclimb.harness.device.gpu.nvml import Gpu, Nvml, Occupant
from hillclimb.harness.device.gpu.quarantine import Quarantine
from hillclimb.harness.errors import MachineError, UsageError

MIN_HIDDEN_USE_BYTES = 1 << 30
"""Memory in use by nobody that the driver names above which a GPU counts as busy: processes of another container."""

IDLE_TIMEOUT_SECONDS = 5.0
"""A judge that has just ended needs a moment until the driver has let go of its memory."""

BUSY_REMEDY = (
    "a judge needs a GPU to itself: wait until they are done, end them, or choose another with HILLCLIMB_GPU"
)

MODES = {
    "prohibited": "lets no process use it",
    "exclusive_process": "lets one process use it, and a duel takes three",
    "exclusive_thread": "lets one thread use it, and a duel takes three processes",
}
"""Compute modes in which no judge can work."""


@dataclass(frozen=True)
class GpuHold:
    """One GPU, held for this process alone until `lock` is closed."""

    gpu: Gpu
    lock: GpuLock
    quarantine: Quarantine


def acquire_gpu(nvml: Nvml, environment: Mapping[str, str], folder: Path) -> GpuHold:
    """The first GPU of those chosen that may be had; locks and quarantines lie in `folder`.

    Raises UsageError where none is chosen, MachineError with the reason of every one that may not be had.
    """
    refusals = []
    for gpu in choose_gpus(nvml.gpus(), environment):
        try:
            return _hold(nvml, gpu, folder)
        except MachineError as error:
            refusals.append(f"{gpu}: {error}")
    raise MachineError("; ".join(refusals))


def choose_gpus(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[Gpu]:
    """Those that the environment names, idlest first. Raises UsageError where there is none."""
    wanted = environment.get("HILLCLIMB_GPU", "").strip()
    visible = environment.get("CUDA_VISIBLE_DEVICES", "").strip()
    names = [wanted] if wanted else [name.strip() for name in visible.split(",") if name.strip()]
    if any(name.startswith("MIG-") for name in names):
        raise UsageError(
            f"{', '.join(names)}: a MIG instance shares its GPU's clocks and power; choose a whole GPU"
        )
    chosen = [gpu for gpu in gpus if not names or any(_is_named(gpu, name) for name in names)]
    if not chosen:
        raise UsageError(
            f"no GPU matches HILLCLIMB_GPU={wanted!r} CUDA_VISIBLE_DEVICES={visible!r}; set HILLCLIMB_GPU to an index "
            f"or UUID of: {'; '.join(map(str, gpus))}"
        )
    if wanted and len(chosen) > 1:
        raise UsageError(
            f"HILLCLIMB_GPU={wanted!r} means any of {'; '.join(map(str, chosen))}; write more of it"
        )
    return sorted(chosen, key=lambda gpu: (gpu.utilization, gpu.used_bytes, gpu.index))


def refuse_mode(gpu: Gpu) -> None:
    """Raises MachineError for a mode in which a duel cannot be fought."""
    if gpu.has_mig:
        raise MachineError(
            "it is split into MIG instances, which share clocks and power; have an administrator end MIG mode, or "
            "choose another GPU"
        )
    if gpu.compute_mode in MODES:
        raise MachineError(
            f"its compute mode {gpu.compute_mode} {MODES[gpu.compute_mode]}; have an administrator set the default "
            "mode, or choose another GPU"
        )


def describe_use(gpu: Gpu, occupants: Sequence[Occupant] | None) -> str:
    """Who uses it already, in words; empty where nobody does. A process that is there may begin to work any moment."""
    if occupants:
        return "in use by " + ", ".join(map(str, occupants))
    if gpu.used_bytes >= MIN_HIDDEN_USE_BYTES:
        return (
            f"{gpu.used_bytes >> 20} MiB of it are in use by processes that are not visible here, as of another "
            "container"
        )
    return ""


def _hold(nvml: Nvml, gpu: Gpu, folder: Path) -> GpuHold:
    refuse_mode(gpu)
    quarantine = Quarantine(gpu.uuid, folder)
    quarantine.require_none()
    lock = GpuLock(gpu.uuid, folder)
    try:
        _await_idle(nvml, gpu.uuid)
        quarantine.require_none()  # by the judge that held the lock a moment ago
    except MachineError:
        lock.close()
        raise
    return GpuHold(gpu, lock, quarantine)


def _await_idle(nvml: Nvml, uuid: str) -> None:
    end = time.monotonic() + IDLE_TIMEOUT_SECONDS
    while True:
        gpu = next(gpu for gpu in nvml.gpus() if gpu.uuid == uuid)
        busy = describe_use(gpu, nvml.occupants(uuid))
        if not busy:
            return
        if time.monotonic() >= end:
            raise MachineError(f"{busy}; {BUSY_REMEDY}")
        time.sleep(0.2)


def _is_named(gpu: Gpu, name: str) -> bool:
    return name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))
