"""The judge of one case on one device: gate, screening, decision, measurement. Runs in a process of its own."""

from __future__ import annotations

import hashlib
import secrets
import statistics
import time
from collections.abc import Sequence
from typing import Literal

from harness.candidate.process import CandidateProcess
from harness.case.case import Case
from harness.case.contract import load_contract
from harness.case.digest import benchmarks_digest, contract_digest, harness_digest
from harness.device.device import Device
from harness.errors import CandidateFault, MachineError, UnreapedError, UsageError
from harness.judge import evidence, tools
from harness.judge.bench import Bench, seconds_per_call, values_of
from harness.judge.counters import Counted
from harness.judge.fresh import signature_of_problem
from harness.judge.gate import Gate
from harness.judge.health import Health
from harness.judge.lanes import count_lanes
from harness.judge.oracle import Oracle, put_to_the_test
from harness.judge.profile import Look
from harness.judge.protocol import Nothing, Progress, Watch
from harness.judge.secret import SecretRandom
from harness.judge.stable import Stable
from harness.judge.trial import ConfirmationTrial, ScreeningTrial
from harness.records import (
    Comparison,
    Confirmation,
    GateReport,
    LaneReport,
    OracleReport,
    Profile,
    Provenance,
    Reason,
    Screening,
    Side,
)
from harness.sandbox.rungs import Rung


class CaseJudge:
    """Implements harness.judge.protocol.Judge in this process.

    Of a method call nothing is left but candidates' processes on their way out, which the next one or `tidy` waits for.
    """

    def __init__(self, case: Case, rung: Rung, device: Device) -> None:
        self._seed = secrets.token_bytes(32)
        secret = SecretRandom(self._seed)
        contract = load_contract(case.contract_file, device.torch_device, device.dtypes)
        signatures = {
            name: signature_of_problem(
                contract, name, device.torch_device, is_run=contract.work(problem).bytes <= device.most_bytes
            )
            for name, problem in contract.problems.items()
        }
        stable = Stable(case, rung, device, signatures)
        self._bench = Bench(case, contract, stable, device, secret)
        self._bench.check_contract()
        self._health = Health(stable, device)
        gate = case.settings.gate
        self._gate = Gate(
            contract,
            self._bench.gated_problems(),
            gate.seeds,
            gate.error_budget,
            secret,
            device.torch_device,
            device.spare_bytes,
        )

    def describe(self) -> Provenance:
        device = self._bench.device
        return Provenance(
            contract=contract_digest(self._bench.case),
            benchmarks=benchmarks_digest(self._bench.case),
            harness=harness_digest(),
            device=device.name(),
            device_id=device.identity(),
            sandbox=self._bench.stable.rung.name,
            software=device.software(),
            seed_commitment=hashlib.sha256(self._seed).hexdigest(),
        )

    def prepare(self, side: Side, parent: Side) -> Nothing:
        self._bench.stable.prepare(side, parent)
        return Nothing()

    def gate(self, side: Side, watch: Watch) -> GateReport:
        self._bench.reap()
        self._settle()
        report = self._report(side, watch)
        self._health.doubt(report.reason, report.detail)
        return report

    def try_oracle(self, watch: Watch) -> OracleReport:
        bench, settings = self._bench, self._bench.case.settings
        oracle = Oracle(bench.contract, settings.gate.error_budget, bench.device.torch_device)
        is_narrow_forbidden = not settings.policy.reduced_precision
        return put_to_the_test(
            oracle, bench.gated_problems(), bench.timed_problems(), is_narrow_forbidden, watch
        )

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        self._expect_clock()
        self._settle()
        started = time.perf_counter()
        screening, gate = ScreeningTrial(self._bench, watch), None
        reason: Reason | None = None
        detail = ""
        try:
            with self._bench.pair(candidate, incumbent) as sides:
                watch(Progress(stage="prepare"))
                self._bench.make_ready([sides], watch, is_gated=True)
                gate = self._gate.check(sides[0], watch)
                _demand(gate)
                screening.run(sides)
        except CandidateFault as fault:
            reason, detail = fault.reason, fault.detail
            gate = gate or _failed(fault)
            self._health.doubt(reason, detail)
        return Screening(
            gate=gate,
            reason=reason,
            detail=detail,
            speedup=screening.speedup,
            pairs=screening.pairs,
            seconds=time.perf_counter() - started,
        )

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        self._expect_clock()
        started = time.perf_counter()
        if self._bench.device.kind == "cuda" and not self._bench.clocks.is_taught:
            self.compare(incumbent, incumbent, "noise", watch)  # a judge that was started anew
        self._settle()
        found, gate = ConfirmationTrial(self._bench, alpha, watch), None
        reason: Reason | None = None
        detail = ""

        def check(process: CandidateProcess) -> None:
            nonlocal gate
            gate = self._gate.check(process, watch)
            _demand(gate)

        try:
            found.run(candidate, incumbent, baseline, check)
            detail = found.note
        except CandidateFault as fault:
            reason, detail = fault.reason, fault.detail
            gate = gate or _failed(fault)
            self._health.doubt(reason, detail)
        assert gate is not None
        return Confirmation(
            gate=gate,
            reason=reason,
            detail=detail,
            alpha=alpha,
            e_value=found.e_value,
            speedup=found.speedup,
            cumulative=found.cumulative,
            seconds_per_call=found.seconds_per_call,
            guardrails=tuple(found.guardrails),
            pairs=tuple(found.pairs),
            seconds=time.perf_counter() - started,
        )

    def compare(
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch, suite: str = ""
    ) -> Comparison:
        self._expect_clock()
        self._settle()
        started = time.perf_counter()
        try:
            pairs = self._bench.fresh_pairs(last, first, stage, watch, suite)
        except CandidateFault as fault:
            raise MachineError(f"a kernel failed while it was compared: {fault}") from fault
        if stage == "noise":
            self._bench.clocks.learn(pairs)
        values = values_of(pairs)
        return Comparison(
            speedup=evidence.interval(values),
            seconds_per_call=(seconds_per_call(pairs, "B"), seconds_per_call(pairs, "A")),
            pair_sd=statistics.stdev(values),
            pairs=tuple(pairs),
            seconds=time.perf_counter() - started,
        )

    def profile(self, side: Side, watch: Watch, suite: str = "") -> Profile:
        self._expect_clock()
        self._bench.reap()
        started = time.perf_counter()
        look = Look(self._bench, watch)
        look.take(side, suite)
        counted = Counted("") if suite else tools.count(self._bench, side)
        lanes = () if suite or not self._bench.case.has_lanes else self.lanes(side, watch).problems
        return Profile(
            problems=tuple(look.problems),
            buckets=look.buckets,
            counters=counted.kernels,
            lanes=lanes,
            ceilings=self._bench.device.ceilings(),
            detail="; ".join(filter(None, (look.detail, counted.trouble))),
            seconds=time.perf_counter() - started,
        )

    def lanes(self, side: Side, watch: Watch, problems: Sequence[str] = ()) -> LaneReport:
        return count_lanes(self._bench, side, problems, watch)

    def quarantine(self, error: UnreapedError) -> None:
        """A process that cannot be ended may hold the device: no judge uses it before a person has looked."""
        self._bench.device.quarantine(str(error), error.pid)

    def tidy(self) -> Nothing:
        """Wait for processes that are no longer needed; while nothing is asked there is time for it."""
        self._bench.reap()
        return Nothing()

    def close(self) -> None:
        try:
            self._bench.reap()
        except UnreapedError as error:
            self.quarantine(error)
            raise
        finally:
            self._bench.stable.close()
            self._bench.device.close()

    def _settle(self) -> None:
        """Where the last candidate left a doubt, settle it, once all of its processes are gone."""
        if self._health.is_in_doubt:
            self._bench.reap()
            self._health.settle()

    def _report(self, side: Side, watch: Watch) -> GateReport:
        try:
            if self._bench.device.tensors == "torch":
                self._bench.stable.compile(side)
            with self._bench.stable.process(side) as candidate:
                watch(Progress(stage="prepare"))
                candidate.await_loaded()
                self._bench.compile([(0, candidate)], self._bench.gated_problems(), watch)
                self._bench.seal([(0, candidate)])
                return self._gate.check(candidate, watch)
        except CandidateFault as fault:
            return _failed(fault)

    def _expect_clock(self) -> None:
        """Raises UsageError where kernels are interpreted: how long that takes says nothing of a GPU."""
        if self._bench.device.tensors == "torch":
            raise UsageError(
                f"{self._bench.case.name} is for an NVIDIA GPU, and none is here: nothing can be timed; go where there "
                "is one, or use `hillclimb check`, which compiles for it and interprets the small problems"
            )


def _demand(gate: GateReport) -> None:
    """Raise what the gate found as the candidate's fault."""
    if gate.reason is not None:
        raise CandidateFault(gate.reason, gate.detail)


def _failed(fault: CandidateFault) -> GateReport:
    return GateReport(passed=False, reason=fault.reason, detail=fault.detail)
