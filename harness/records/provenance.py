"""What judged, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable

from hillclimb.harness.records.record import Record


class Provenance(Record):
    """What judged: enough to tell whether two records may be compared."""

    contract: str
    """sha256 over case.yaml, contract.py and the case's other fixed files."""
    benchmarks: str
    """sha256 over the files below benchmarks/."""
    harness: str
    """sha256 over the harness package."""
    device: str
    """The device's name, e.g. the CPU model."""
    device_id: str
    """GPU UUID, or the machine id of a CPU."""
    sandbox: str
    """The rung in force: bubblewrap, landlock, or none (trusted workspace)."""
    software: dict[str, str]
    """Versions: python, kernel, torch, triton, numba, driver where there is one."""
    seed_commitment: str
    """sha256 of the judge's secret seed; the seed itself never leaves the judge."""


class Progress(Record):
    """Where a judgement stands; for eyes only, never recorded."""

    stage: str
    """prepare, gate, oracle, noise, profile, lanes, screen, decide, sanitize, report, cumulative, guardrail;
    yardstick in a study."""
    done: int = 0
    of: int = 0
    speedup: float | None = None
    """The running estimate, where there is one."""


Watch = Callable[[Progress], None]
