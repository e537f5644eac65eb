"""Whether a GPU is still in its senses after a candidate failed on it: a kernel with a known answer must run."""

from __future__ import annotations

from pathlib import Path

import torch

from harness.candidate.arena import Arena
from harness.candidate.layout import lay_out
from harness.candidate.memory import CudaMemory
from harness.candidate.process import CandidateProcess
from harness.device.device import Device
from harness.errors import CandidateFault, MachineError
from harness.judge import canary
from harness.judge.stable import Stable
from harness.records import Reason

WORKSPACE = Path(canary.__path__[0])
SIZE = 1 << 20

SHAKING = frozenset(
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


class Health:
    """Remembers whether the last candidate left a doubt, and settles it before the next one counts."""

    def __init__(self, stable: Stable, device: Device) -> None:
        self._stable, self._device, self._doubt = stable, device, ""

    def doubt(self, reason: Reason | None, detail: str) -> None:
        """Take note of how a candidate's evaluation ended."""
        if self._device.kind == "cuda" and reason in SHAKING:
            self._doubt = f"{reason}: {detail}"

    @property
    def is_in_doubt(self) -> bool:
        return bool(self._doubt)

    def settle(self) -> None:
        """Run the canary kernel. Raises MachineError where it does not do what it must."""
        layout = lay_out([("x", (SIZE,), "float32")], [("y", (SIZE,), "float32")], 1)
        arena = Arena(layout, CudaMemory)
        try:
            with self._stable.canary(WORKSPACE) as process:
                self._run(process, arena)
        except CandidateFault as fault:
            raise MachineError(
                f"the GPU does not run a known kernel any more ({fault}), after a candidate failed ({self._doubt}); "
                "look at `dmesg` and `nvidia-smi`, and restart the machine if that stays"
            ) from fault
        finally:
            arena.close()
        self._doubt = ""

    def _run(self, process: CandidateProcess, arena: Arena) -> None:
        process.await_loaded()
        x = torch.randn(SIZE, device=self._device.torch_device)
        arena.fill(0, {"x": x})
        arena.poison(range(1))
        self._device.synchronize()
        process.call(arena, 0, 1)
        if not torch.equal(arena.outputs(0)["y"], x * 2 + 1):
            raise CandidateFault(Reason.WRONG_RESULT, "2 x + 1 came out wrong")
