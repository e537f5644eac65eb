"""The group with all of its commands: importing a command adds it."""

from __future__ import annotations

from hillclimb.agent.commands.gemm import bench, build, compare, generate, select, shapes, sweep
from hillclimb.agent.commands.gemm.options import gemm

__all__ = ["bench", "build", "compare", "gemm", "generate", "select", "shapes", "sweep"]
