"""The group with all of its commands: importing a command adds it."""

from __future__ import annotations

from hillclimb.agent.commands.gemm import (
    bench,
    build,
    claim,
    compare,
    generate,
    select,
    shapes,
    sweep,
    won,
)
from hillclimb.agent.commands.gemm.options import gemm

__all__ = ["bench", "build", "claim", "compare", "gemm", "generate", "select", "shapes", "sweep", "won"]
