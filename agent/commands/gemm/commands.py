"""The group with all of its commands: importing a command adds it."""

from __future__ import annotations

from hillclimb.agent.commands.gemm import bench, build, compare, select, shapes, sweep
from hillclimb.agent.commands.gemm.options import gemm

__all__ = ["bench", "build", "compare", "gemm", "select", "shapes", "sweep"]
