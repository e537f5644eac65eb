"""What the bench and a provider's process say to each other: one line of JSON each way."""

from __future__ import annotations

from typing import Literal

from hillclimb.harness.gemm.results import FailureStatus, Product
from hillclimb.harness.records.record import Record

WorkerAction = Literal["start", "prepare", "check", "time", "refine"]


class WorkerAsk(Record):
    """What is to be done."""

    action: WorkerAction
    product: Product | None = None
    """Of `prepare`: the shape whose operands are made, and whose kernels are named."""
    operand_sets: int = 0
    """Of `prepare`: how many; 0 for as many as do not fit into the cache."""
    kernel: str = ""
    """Of `check` and `time`."""
    best: tuple[str, ...] = ()
    """Of `refine`: near which others are looked for."""
    calls: int = 0
    """Of `time`: how many in one graph; 0 for as many as take long enough to be timed."""


class WorkerAnswer(Record):
    """What came of it."""

    software: dict[str, str] | None = None
    """Of `start`: versions by name."""
    kernels: tuple[str, ...] = ()
    """Of `prepare`, the likeliest first; of `refine`."""
    seconds: float = 0.0
    """Of `time`: of one call."""
    fault: FailureStatus | None = None
    """What went wrong, if anything."""
    detail: str = ""
    is_broken: bool = False
    """Whether the process can go on: an illegal access leaves a GPU's context useless."""
