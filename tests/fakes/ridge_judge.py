"""A judge over a ridge: true log speeds, seen through the noise of pairs of processes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from hillclimb.harness.errors import UsageError
from hillclimb.harness.judge.protocol import EmptyAnswer
from hillclimb.harness.knobs.knobs import Knobs
from hillclimb.harness.records import (
    Bucket,
    Comparison,
    Confirmation,
    GateReport,
    Interval,
    LaneReport,
    OracleReport,
    ProblemTime,
    Profile,
    Provenance,
    Reason,
    Screening,
    Side,
    Watch,
)
from tests.fakes.judge import PROVENANCE
from tests.fakes.ridge import MINIMUM_EFFECT, PAIR_SD, PAIRS, Ridge, parse_cached, traits_of, true_log_speed


class RidgeJudge:
    """Implements hillclimb.harness.judge.protocol.Judge."""

    def __init__(self, ridge: Ridge, provenance: Provenance = PROVENANCE) -> None:
        self._ridge, self._provenance = ridge, provenance

    def describe(self) -> Provenance:
        return self._provenance

    def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
        return EmptyAnswer()

    def gate(self, side: Side, watch: Watch) -> GateReport:
        if self._true(side) is None:
            return GateReport(
                passed=False, reason=Reason.WRONG_RESULT, detail="off the ridge", runs=1, worst=3.0
            )
        return GateReport(passed=True, runs=8, worst=0.25)

    def check_oracle(self, watch: Watch) -> OracleReport:
        return OracleReport(tried=0)

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        gate, ratio = self.gate(candidate, watch), self._ratio(candidate, incumbent)
        if ratio is None:
            return Screening(gate=gate, reason=gate.reason, detail=gate.detail)
        seen = ratio + self._noise("screen", candidate, incumbent, 1)
        reason = None if seen > math.log1p(MINIMUM_EFFECT) else Reason.NO_PROVEN_GAIN
        if seen < -2 * PAIR_SD:
            reason = Reason.SLOWER
        return Screening(gate=gate, reason=reason, speedup=math.exp(seen))

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        gate, ratio = self.gate(candidate, watch), self._ratio(candidate, incumbent)
        if ratio is None:
            return Confirmation(gate=gate, reason=gate.reason, detail=gate.detail, alpha=alpha)
        seen = ratio + self._noise("decide", candidate, incumbent, PAIRS)
        kept = seen - 3 * PAIR_SD / math.sqrt(PAIRS) > math.log1p(MINIMUM_EFFECT)
        total = self._ratio(candidate, baseline) or 0.0
        return Confirmation(
            gate=gate,
            reason=None if kept else Reason.NO_PROVEN_GAIN,
            alpha=alpha,
            speedup=_interval(seen),
            cumulative=_interval(total + self._noise("total", candidate, baseline, PAIRS)),
            seconds_per_call=1e-3 / math.exp(total),
        )

    def compare(
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch, suite: str = ""
    ) -> Comparison:
        seen = (self._ratio(last, first) or 0.0) + self._noise(stage, last, first, PAIRS)
        return Comparison(speedup=_interval(seen), seconds_per_call=(1e-3, 1e-3), pair_sd=PAIR_SD)

    def profile(self, side: Side, watch: Watch, suite: str = "") -> Profile:
        shares = sorted(self._ridge.shares(_read(side.tree)[0]).items(), key=lambda item: -item[1])
        buckets = tuple(
            Bucket(name=name, share=s, seconds_per_call=s * 1e-3, calls=1.0) for name, s in shares
        )
        problem = ProblemTime(problem="only", seconds_per_call=1e-3, flops=1e6, bytes=1e5)
        return Profile(problems=(problem,), buckets=buckets)

    def lanes(self, side: Side, watch: Watch, problems: Sequence[str] = ()) -> LaneReport:
        raise UsageError("the simulated kernel is not one of Triton's")

    def close(self) -> None:
        """It holds nothing."""

    def _true(self, side: Side) -> float | None:
        present, knobs = _read(side.tree)
        return true_log_speed(self._ridge, present, knobs, side.knobs)

    def _ratio(self, candidate: Side, incumbent: Side) -> float | None:
        above, below = self._true(candidate), self._true(incumbent)
        return None if above is None or below is None else above - below

    def _noise(self, stage: str, a: Side, b: Side, pairs: int) -> float:
        key = "/".join((stage, Path(a.tree).name, str(sorted(a.knobs.items())), Path(b.tree).name))
        return random.Random(f"{self._ridge.seed}/{key}").gauss(0, PAIR_SD / math.sqrt(pairs))


def _read(tree: str) -> tuple[frozenset[str], Knobs]:
    folder = Path(tree)
    files = {path.name: path.read_text() for path in folder.glob("*.py")}
    return traits_of(files), parse_cached((folder / "knobs.yaml").read_text())


def _interval(log_ratio: float) -> Interval:
    low, high = math.exp(log_ratio - 0.005), math.exp(log_ratio + 0.005)
    return Interval(estimate=math.exp(log_ratio), low=low, high=high, pairs=PAIRS)
