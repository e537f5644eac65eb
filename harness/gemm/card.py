"""The GPU that a provider of kernels will be timed on, as the driver names it."""

from __future__ import annotations

import os
import subprocess

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.results import GpuCard

ASK_SECONDS = 60.0


def find_card() -> GpuCard:
    """The first one that CUDA would see. Raises UsageError where there is none."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.strip():
        raise UsageError(_no_card("CUDA_VISIBLE_DEVICES is empty, so CUDA sees none"))
    if visible:
        command += ["-i", visible.split(",")[0].strip()]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(_no_card(str(error))) from None
    line = next(iter(told.stdout.splitlines()), "")
    name, mark, driver = (part.strip() for part in line.rpartition(","))
    if told.returncode or not mark:
        raise UsageError(_no_card((told.stdout + told.stderr).strip()))
    return GpuCard(name=name, driver=driver)


def _no_card(why: str) -> str:
    return f"this times kernels on an NVIDIA GPU, and none is named ({why}); run it where there is one"
