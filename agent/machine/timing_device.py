"""Whether this machine has the device that a case is for; asked before anything is begun."""

from __future__ import annotations

from pathlib import Path

from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError

NVIDIA_DRIVER = Path("/dev/nvidiactl")
"""Here where NVIDIA's driver is: what the judge goes by."""


def is_interpreted(case: Case) -> bool:
    """Whether the case's kernels can only be compiled and interpreted here, which says nothing of their speed."""
    return case.settings.device == "cuda" and not NVIDIA_DRIVER.exists()


def require_timing_device(case: Case) -> None:
    """Raises UsageError where nothing of the case can be timed here."""
    if is_interpreted(case):
        raise UsageError(
            f"{case.name} is for an NVIDIA GPU, and none is here ({NVIDIA_DRIVER} is missing), so "
            f"nothing can be timed; "
            f"run it where there is one, or use 'hillclimb check {case.name}', which compiles for it and interprets "
            "the small problems"
        )
