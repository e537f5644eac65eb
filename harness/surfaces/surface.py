"""What is measured of two sides where it is no kernel: fresh pairs, and blocks of segments with metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from hillclimb.harness.case.metrics import Metric
from hillclimb.harness.records import Block, Bucket, Side


class CheckedSide(NamedTuple):
    """One that is right."""

    worst: float = 0.0
    """Its largest error as a share of what is allowed; 0 where none is known."""
    engaged: tuple[Bucket, ...] = ()
    """The kernels that it claims to run, as they were seen to."""


class OpenPair(Protocol):
    """Two sides that take turns. A is the candidate, B what it is compared with."""

    def time_block(self, suite: str) -> Block:
        """One block of a suite.

        Raises CandidateFault for what A does wrong; the same of B, which has passed all this before, is an
        IncumbentFault.
        """


class Surface(Protocol):
    """One way to measure workspaces."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """What every segment gives, by name; `wall` is the judge's own clock."""

    @property
    def pair_blocks(self) -> int:
        """Blocks of a fresh pair, whose median is its one value."""

    def check(self, side: Side, suites: Sequence[str]) -> CheckedSide:
        """Run a side once on each suite. Raises CandidateFault where it is wrong, or what it claims does not run."""

    def open_pair(self, candidate: Side, opponent: Side) -> AbstractContextManager[OpenPair]:
        """A fresh pair."""
