"""The judge of a case whose surface gives metrics, in place of a contract and a kernel."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Sequence
from typing import Literal

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.digest import benchmarks_digest, contract_digest, harness_digest
from hillclimb.harness.case.metrics import WALL
from hillclimb.harness.device.device import Device
from hillclimb.harness.engagement.engagement import require_changes_engaged
from hillclimb.harness.errors import CandidateFault, IncumbentFault, UnreapedError, UsageError
from hillclimb.harness.judge.metric_trial import MetricTrial
from hillclimb.harness.judge.protocol import EmptyAnswer
from hillclimb.harness.records import (
    Comparison,
    Confirmation,
    GateReport,
    LaneReport,
    OracleReport,
    Pair,
    Profile,
    Progress,
    Provenance,
    Reason,
    Screening,
    Side,
    Watch,
)
from hillclimb.harness.sandbox.rungs.choose import Rung
from hillclimb.harness.statistics import evidence
from hillclimb.harness.surfaces.gains import median_log_gain, report_metrics, typical
from hillclimb.harness.surfaces.surface import Surface


class MetricJudge:
    """Implements hillclimb.harness.judge.protocol.Judge in this process."""

    def __init__(self, case: Case, rung: Rung, device: Device, surface: Surface, seed: bytes) -> None:
        """`seed` is what everything secret is drawn from."""
        self._case, self._rung, self._device, self._surface = case, rung, device, surface
        self._seed = seed

    def describe(self) -> Provenance:
        return Provenance(
            contract=contract_digest(self._case),
            benchmarks=benchmarks_digest(self._case),
            harness=harness_digest(),
            device=self._device.name(),
            device_id=self._device.identity(),
            sandbox=self._rung.name,
            software=self._device.software(),
            seed_commitment=hashlib.sha256(self._seed).hexdigest(),
        )

    def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
        """Nothing can be done ahead."""
        return EmptyAnswer()

    def gate(self, side: Side, watch: Watch) -> GateReport:
        """Every suite once."""
        try:
            return self._check(side, watch)
        except CandidateFault as fault:
            return _failed(fault)

    def check_oracle(self, watch: Watch) -> OracleReport:
        """There is no contract: what is right is the command's to say."""
        return OracleReport(tried=0)

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        _require_workspace(candidate, incumbent)
        started = time.perf_counter()
        trial, gate = MetricTrial(self._surface, self._case.settings, watch), None
        reason: Reason | None = None
        detail = ""
        try:
            require_changes_engaged(candidate, incumbent)
            gate = self._check(candidate, watch)
            trial.screen(candidate, incumbent)
        except CandidateFault as fault:
            reason, detail = fault.reason, fault.detail
            gate = gate or _failed(fault)
        return Screening(
            gate=gate,
            reason=reason,
            detail=detail,
            speedup=trial.screened,
            pairs=tuple(trial.pairs),
            seconds=time.perf_counter() - started,
        )

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        _require_workspace(candidate, incumbent, baseline)
        started = time.perf_counter()
        trial, gate = MetricTrial(self._surface, self._case.settings, watch), None
        reason: Reason | None = None
        detail = ""
        try:
            require_changes_engaged(candidate, incumbent)
            gate = self._check(candidate, watch)
            trial.decide(candidate, incumbent, alpha)
            trial.check_guardrails()
            trial.report(candidate, incumbent, baseline)
        except CandidateFault as fault:
            reason, detail = fault.reason, fault.detail
            gate = gate or _failed(fault)
        reported = [pair for pair in trial.pairs if pair.stage == "report"]
        return Confirmation(
            gate=gate,
            reason=reason,
            detail=detail,
            alpha=alpha,
            e_value=trial.e_value,
            decided=trial.decided,
            refuted=trial.refuted,
            speedup=trial.speedup,
            cumulative=trial.cumulative,
            seconds_per_call=typical(reported, WALL, "A") if trial.speedup else None,
            metrics=trial.metrics,
            guardrails=tuple(trial.guardrails),
            pairs=tuple(trial.pairs),
            seconds=time.perf_counter() - started,
        )

    def compare(
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch, suite: str = ""
    ) -> Comparison:
        _require_workspace(first, last)
        started = time.perf_counter()
        trial = MetricTrial(self._surface, self._case.settings, watch)
        try:
            pairs = trial.measure(last, first, stage, suite)
        except CandidateFault as fault:
            raise IncumbentFault(f"a workspace failed while it was compared: {fault}") from fault
        values = self._values(pairs)
        return Comparison(
            speedup=evidence.interval(values),
            seconds_per_call=(typical(pairs, WALL, "B"), typical(pairs, WALL, "A")),
            pair_sd=statistics.stdev(values),
            metrics=tuple(report_metrics(pairs, self._surface.metrics)),
            pairs=tuple(pairs),
            seconds=time.perf_counter() - started,
        )

    def profile(self, side: Side, watch: Watch, suite: str = "") -> Profile:
        """No problem is timed by itself, and nobody looks into the command."""
        return Profile(problems=(), detail="a command is not profiled")

    def lanes(self, side: Side, watch: Watch, problems: Sequence[str] = ()) -> LaneReport:
        raise UsageError(f"{self._case.name} runs a command: it has no kernels whose lanes could be counted")

    def quarantine(self, error: UnreapedError) -> None:
        """A process that cannot be ended may hold the device: no judge uses it before a person has looked."""
        self._device.quarantine(str(error), error.pid)

    def clean_up(self) -> EmptyAnswer:
        """Nothing is left between questions."""
        return EmptyAnswer()

    def close(self) -> None:
        self._device.close()

    def _check(self, side: Side, watch: Watch) -> GateReport:
        """Raises CandidateFault."""
        suites = self._case.judged_suites
        watch(Progress(stage="gate", of=len(suites)))
        found = self._surface.check(side, suites)
        return GateReport(passed=True, runs=len(suites), worst=found.worst, engaged=found.engaged)

    def _values(self, pairs: Sequence[Pair]) -> list[float]:
        name = self._case.settings.objective.metric
        return [median_log_gain(pair, name, self._surface.metrics[name]) for pair in pairs]


def _require_workspace(*sides: Side) -> None:
    """Raises UsageError for a yardstick, which is a kernel."""
    if any(side.is_yardstick for side in sides):
        raise UsageError("a yardstick is a kernel, and this case runs a command; compare workspaces")


def _failed(fault: CandidateFault) -> GateReport:
    return GateReport(passed=False, reason=fault.reason, detail=fault.detail)
