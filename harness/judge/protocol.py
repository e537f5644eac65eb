"""The judge as the controller sees it: eight questions and a hint, answered with records.

The same interface is served by a local process (`hillclimb.harness.judge.pool.LocalJudge`) and, in tests, by a
simulated landscape. Everything that crosses is a Record; progress arrives through a callback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from hillclimb.harness.records import (
    Comparison,
    Confirmation,
    GateReport,
    LaneReport,
    OracleReport,
    Profile,
    Provenance,
    Record,
    Screening,
    Side,
    Watch,
)


class EmptyAnswer(Record):
    """The answer where there is nothing to say."""


class Judge(Protocol):
    """Answers about one case on one device. Every method raises MachineError where the machine failed."""

    def describe(self) -> Provenance:
        """What judges here: digests, device, sandbox rung, versions."""

    def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
        """A hint that `side`, made out of `parent`, will be asked about soon: begin what needs no measuring device."""

    def gate(self, side: Side, watch: Watch) -> GateReport:
        """Parity of one side over every problem, distribution and seed; no timing."""

    def check_oracle(self, watch: Watch) -> OracleReport:
        """Which results that are wrong on purpose the case's contract accepts; no candidate is run."""

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        """Gate the candidate and duel it on one pair of processes; no `reason` means: worth confirming."""

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        """Decide over fresh pairs at `alpha`, check guardrails, then measure speedups from further pairs.

        Gates the candidate first: its tree may differ from the one screened (source defaults).
        """

    def compare(
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch, suite: str = ""
    ) -> Comparison:
        """Measure `last` against `first` on one suite (the objective's) without deciding anything.

        Equal sides measure the noise floor.
        """

    def profile(self, side: Side, watch: Watch, suite: str = "") -> Profile:
        """Time of each problem of one suite (the objective's), where it goes, and the device's ceilings.

        Hardware counters are read and masked lanes counted for the objective's suite alone, for that takes seconds.

        A side that runs but cannot be profiled has no buckets; `detail` says why.
        """

    def lanes(self, side: Side, watch: Watch, problems: Sequence[str] = ()) -> LaneReport:
        """Masked lanes and loop trips of Triton kernels, interpreted: of one call on each of these problems.

        Without any named, on a few that are small enough. Raises UsageError for a case without Triton kernels.
        """

    def close(self) -> None:
        """End the judge and every process of its."""
