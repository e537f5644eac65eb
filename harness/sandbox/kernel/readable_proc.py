"""What of /proc and /sys a candidate may read beside its own entries."""

from __future__ import annotations

CPUS = "/sys/devices/system/cpu"
"""For NumPy and numba."""

DEVICE_PATHS = (
    "/proc/devices",
    "/proc/driver",
    "/proc/filesystems",
    "/proc/modules",
    "/proc/sys/vm",
    "/proc/version",
)
"""For libcuda, which on an H200 (driver 580) starts and computes without anything of /sys but the CPUs."""
