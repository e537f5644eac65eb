"""The rules by which kernels are usually kept, as functions of timing samples: for comparison with the judge's.

A reading is the list of times, in any one unit, that one call of `triton.testing.do_bench` took. A run is three
readings of one candidate, each worth having from a process of its own: only `best_of_three` looks at all of them.

    from scripts.experiments.usual_rules import read, verdicts
    verdicts([read(candidate) for _ in range(3)], [read(incumbent) for _ in range(3)])
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

Reading = Sequence[float]
Run = Sequence[Reading]
"""Readings of one candidate, three or more."""

READINGS = 3
THRESHOLD = 0.01


def lower_mean(candidate: Run, incumbent: Run) -> bool:
    """The first reading's mean is lower."""
    return statistics.fmean(candidate[0]) < statistics.fmean(incumbent[0])


def one_percent_on_the_median(candidate: Run, incumbent: Run) -> bool:
    """The first reading's median is lower by more than 1 %."""
    return statistics.median(candidate[0]) < (1 - THRESHOLD) * statistics.median(incumbent[0])


def best_of_three(candidate: Run, incumbent: Run) -> bool:
    """The lowest of three readings' means is lower."""
    ours, theirs = (min(statistics.fmean(r) for r in run[:READINGS]) for run in (candidate, incumbent))
    return ours < theirs


RULES: dict[str, Callable[[Run, Run], bool]] = {
    "lower mean": lower_mean,
    "1 % on the median": one_percent_on_the_median,
    "best of 3": best_of_three,
}


def verdicts(candidate: Run, incumbent: Run) -> dict[str, bool]:
    """Whether each rule keeps the candidate. Raises ValueError where a reading is missing or empty."""
    for name, run in (("candidate", candidate), ("incumbent", incumbent)):
        if len(run) < READINGS or not all(run):
            sizes = [len(reading) for reading in run]
            raise ValueError(f"{name}: readings of {sizes} samples; {READINGS} that are not empty are needed")
    return {name: rule(candidate, incumbent) for name, rule in RULES.items()}


def kept_by(found: Sequence[dict[str, bool]]) -> dict[str, int]:
    """How many of many verdicts each rule kept."""
    return {name: sum(verdict[name] for verdict in found) for name in RULES}


def read(kernel: Callable[[], object], warmup_ms: int = 25, rep_ms: int = 100) -> list[float]:
    """One reading of a callable on the current CUDA device: milliseconds of each call, as do_bench takes them.

    do_bench empties the L2 cache before every call and takes the time between two events on the current stream.
    Needs triton and a GPU.
    """
    from triton.testing import do_bench

    return [float(ms) for ms in do_bench(kernel, warmup=warmup_ms, rep=rep_ms, return_mode="all")]
