"""Whether a GPU is still in its senses after a candidate failed on it: a kernel with a known answer must run."""

from __future__ import annotations

from pathlib import Path

import torch

from hillclimb.harness.channel.layout import lay_out
from hillclimb.harness.channel.memory import CudaMemory
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launcher import CandidateLauncher
from hillclimb.harness.errors import CandidateFault, MachineError
from hillclimb.harness.judge import known_kernel
from hillclimb.harness.records import Reason

WORKSPACE = Path(known_kernel.__path__[0])
SIZE = 1 << 20

SUSPECT_REASONS = frozenset(
    {
        Reason.RAISED,
        Reason.CRASHED,
        Reason.EXITED,
        Reason.HUNG,
        Reason.OUT_OF_MEMORY,
        Reason.BROKE_PROTOCOL,
        Reason.STARTED_PROCESS,
        Reason.LEFT_WORK_RUNNING,
        Reason.WROTE_OUT_OF_BOUNDS,
        Reason.OUTPUT_NOT_WRITTEN,
    }
)
"""What may have come from, or left behind, a GPU that does not do as it is told."""


class GpuHealth:
    """Remembers whether the last candidate left a doubt, and settles it before the next one counts."""

    def __init__(self, launcher: CandidateLauncher, device: Device) -> None:
        self._launcher, self._device, self._suspicion = launcher, device, ""

    def suspect(self, reason: Reason | None, detail: str) -> None:
        """Take note of how a candidate's evaluation ended."""
        if self._device.kind == "cuda" and reason in SUSPECT_REASONS:
            self._suspicion = f"{reason}: {detail}"

    @property
    def is_suspect(self) -> bool:
        return bool(self._suspicion)

    def verify(self) -> None:
        """Run the canary kernel. Raises MachineError where it does not do what it must."""
        layout = lay_out([("x", (SIZE,), "float32")], [("y", (SIZE,), "float32")], 1)
        arena = Arena(layout, CudaMemory)
        try:
            with self._launcher.launch_known_kernel(WORKSPACE) as process:
                self._run(process, arena)
        except CandidateFault as fault:
            raise MachineError(
                f"the GPU does not run a known kernel any more ({fault}), "
                f"after a candidate failed ({self._suspicion}); "
                "look at `dmesg` and `nvidia-smi`, and restart the machine if that stays"
            ) from fault
        finally:
            arena.close()
        self._suspicion = ""

    def _run(self, process: CandidateProcess, arena: Arena) -> None:
        process.await_loaded()
        x = torch.randn(SIZE, device=self._device.torch_device)
        arena.fill(0, {"x": x})
        arena.poison(range(1))
        self._device.synchronize()
        process.call(arena, 0, 1)
        if not torch.equal(arena.outputs(0)["y"], x * 2 + 1):
            raise CandidateFault(Reason.WRONG_RESULT, "2 x + 1 came out wrong")
