"""A judge over a simulated landscape: its verdicts are a function of the two trees and their knobs, and instant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from hillclimb.harness.errors import UsageError
from hillclimb.harness.judge.protocol import EmptyAnswer
from hillclimb.harness.knobs.knobs import defaults, parse_knobs, to_environment
from hillclimb.harness.records import (
    Block,
    Bucket,
    Ceilings,
    Comparison,
    Confirmation,
    GateReport,
    GuardrailReport,
    Interval,
    LaneReport,
    OracleReport,
    Pair,
    ProblemTime,
    Profile,
    Progress,
    Provenance,
    Reason,
    Screening,
    Side,
    Watch,
)

_TILES = {"8": 1.0, "16": 1.1, "32": 1.4, "64": 1.2}
_UNROLLS = {"1": 1.0, "2": 1.05, "4": 0.6}
_MINIMUM_EFFECT = 0.02

PROVENANCE = Provenance(
    contract="c" * 64,
    benchmarks="b" * 64,
    harness="a" * 64,
    device="simulated",
    device_id="none",
    sandbox="bubblewrap",
    software={"python": "3"},
    seed_commitment="0" * 64,
)


class SimulatedJudge:
    """Implements hillclimb.harness.judge.protocol.Judge over the toy case."""

    def __init__(self, provenance: Provenance = PROVENANCE) -> None:
        self._provenance = provenance
        self.closed = False

    def describe(self) -> Provenance:
        return self._provenance

    def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
        return EmptyAnswer()

    def gate(self, side: Side, watch: Watch) -> GateReport:
        watch(Progress(stage="gate", done=1, of=1))
        flaw = _facts(side).get("FLAW", "")
        if flaw in tuple(Reason):
            return GateReport(
                passed=False, reason=Reason(flaw), detail=f"simulated {flaw}", runs=1, worst=9.0
            )
        if _facts(side)["TRICK"] == "1" and not side.knobs:
            return GateReport(
                passed=False, reason=Reason.WRONG_RESULT, detail="the trick shows", runs=1, worst=2.0
            )
        return GateReport(passed=True, runs=8, worst=0.25, worst_at="only/normal")

    def check_oracle(self, watch: Watch) -> OracleReport:
        return OracleReport(tried=0)

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        gate = self.gate(candidate, watch)
        if gate.reason:
            return Screening(gate=gate, reason=gate.reason, detail=gate.detail, seconds=0.5)
        speedup = _seconds(incumbent) / _seconds(candidate)
        watch(Progress(stage="screen", done=1, of=1, speedup=speedup))
        reason = Reason.SLOWER if speedup < 1.0 else None
        pairs = (_pair("screen", candidate, incumbent),)
        return Screening(gate=gate, reason=reason, speedup=speedup, pairs=pairs, seconds=1.5)

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        gate = self.gate(candidate, watch)
        if gate.reason:
            return Confirmation(gate=gate, reason=gate.reason, detail=gate.detail, alpha=alpha, seconds=0.5)
        speedup = _seconds(incumbent) / _seconds(candidate)
        rail = _guardrail(candidate)
        kept = speedup > 1 + _MINIMUM_EFFECT
        reason = (None if rail.passed else Reason.GUARDRAIL) if kept else Reason.NO_PROVEN_GAIN
        return Confirmation(
            gate=gate,
            reason=reason,
            detail="" if reason is None else f"simulated {reason}",
            alpha=alpha,
            e_value=1 / alpha if kept else 0.5,
            speedup=_interval(speedup),
            cumulative=_interval(_seconds(baseline) / _seconds(candidate)),
            seconds_per_call=_seconds(candidate),
            guardrails=(rail,),
            pairs=tuple(_pair("decide", candidate, incumbent) for _ in range(3)),
            seconds=4.0,
        )

    def compare(
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch, suite: str = ""
    ) -> Comparison:
        watch(Progress(stage=stage, done=1, of=1))
        speedup = _seconds(first) / _seconds(last)
        return Comparison(
            speedup=_interval(speedup),
            seconds_per_call=(_seconds(first), _seconds(last)),
            pair_sd=0.002,
            pairs=(_pair(stage, last, first),),
            seconds=2.0,
        )

    def profile(self, side: Side, watch: Watch, suite: str = "") -> Profile:
        watch(Progress(stage="profile", done=1, of=1))
        seconds = _seconds(side)
        return Profile(
            problems=(ProblemTime(problem="only", seconds_per_call=seconds, flops=1e6, bytes=1e5),),
            buckets=(Bucket(name="kernel.py:run", share=1.0, seconds_per_call=seconds, calls=1.0),),
            ceilings=Ceilings(flops=1e11, bytes=1e10, how="simulated"),
            seconds=0.5,
        )

    def lanes(self, side: Side, watch: Watch, problems: Sequence[str] = ()) -> LaneReport:
        raise UsageError("the simulated kernel is not one of Triton's")

    def close(self) -> None:
        self.closed = True


def _facts(side: Side) -> dict[str, str]:
    """What the tree's files and its environment say."""
    lines = (Path(side.tree) / "kernel.py").read_text().splitlines()
    facts = {name: value.strip("'") for name, _, value in (line.partition(" = ") for line in lines)}
    return facts | _defaults((Path(side.tree) / "knobs.yaml").read_text()) | dict[str, str](side.knobs)


@cache
def _defaults(knobs: str) -> dict[str, str]:
    """As environment variables."""
    return to_environment(defaults(parse_knobs(knobs, Path("knobs.yaml"))))


def _seconds(side: Side) -> float:
    facts: Mapping[str, str] = _facts(side)
    trick = 1.5 if facts["TRICK"] == "1" else 1.0
    return 1e-3 / (float(facts["QUALITY"]) * _TILES[facts["TILE"]] * _UNROLLS[facts["UNROLL"]] * trick)


def _guardrail(candidate: Side) -> GuardrailReport:
    passed = _facts(candidate).get("FLAW") != "ragged"
    speedup = _interval(1.0 if passed else 0.5)
    return GuardrailReport(suite="ragged", speedup=speedup, max_slowdown=0.05, passed=passed)


def _interval(estimate: float) -> Interval:
    return Interval(estimate=estimate, low=estimate * 0.99, high=estimate * 1.01, pairs=5)


def _pair(
    stage: Literal["noise", "screen", "decide", "report", "cumulative", "guardrail"], a: Side, b: Side
) -> Pair:
    times = (_seconds(a), _seconds(b), _seconds(b), _seconds(a))
    assert all(math.isfinite(time) for time in times)
    return Pair(stage=stage, suite="main", blocks=(Block(order="ABBA", seconds=times),))
