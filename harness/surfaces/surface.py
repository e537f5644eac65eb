"""What is measured of two sides where it is no kernel: fresh pairs, and blocks of segments with metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from hillclimb.harness.case.metrics import Metric
from hillclimb.harness.records import Block, Side


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

    def check(self, side: Side, suites: Sequence[str]) -> float:
        """Run a side once on each suite: its largest error as a share of what is allowed, 0 where none is known.

        Raises CandidateFault where it is wrong.
        """

    def open_pair(self, candidate: Side, opponent: Side) -> AbstractContextManager[OpenPair]:
        """A fresh pair."""
