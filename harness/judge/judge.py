"""The judge of one case on one CPU: gate, screening, decision, measurement. Runs in a process of its own."""

from __future__ import annotations

import hashlib
import secrets
import statistics
import time
from typing import Literal

from harness.candidate.process import CandidateProcess
from harness.case.case import Case
from harness.case.contract import load_contract
from harness.case.digest import benchmarks_digest, contract_digest, harness_digest
from harness.device import cpu
from harness.device.ceilings import Roofs, measure_cpu
from harness.errors import CandidateFault, MachineError
from harness.judge import evidence
from harness.judge.bench import Bench, seconds_per_call, values_of
from harness.judge.gate import Gate
from harness.judge.profile import Look
from harness.judge.protocol import Progress, Watch
from harness.judge.secret import SecretRandom
from harness.judge.trial import ConfirmationTrial, ScreeningTrial
from harness.records import (
    Comparison,
    Confirmation,
    GateReport,
    Profile,
    Provenance,
    Reason,
    Screening,
    Side,
)
from harness.sandbox.rungs import Rung


class CpuJudge:
    """Implements harness.judge.protocol.Judge in this process. Nothing outlives a method call."""

    def __init__(self, case: Case, rung: Rung) -> None:
        self._seed = secrets.token_bytes(32)
        self._bench = Bench(case, load_contract(case.contract_file), rung, SecretRandom(self._seed))
        self._bench.check_contract()
        gate = case.settings.gate
        self._gate = Gate(self._bench.contract, gate.seeds, gate.error_budget, self._bench.secret)
        self._roofs = Roofs()

    def describe(self) -> Provenance:
        return Provenance(
            contract=contract_digest(self._bench.case),
            benchmarks=benchmarks_digest(self._bench.case),
            harness=harness_digest(),
            device=cpu.name(),
            device_id=cpu.identity(),
            sandbox=self._bench.rung.name,
            software=cpu.software(),
            seed_commitment=hashlib.sha256(self._seed).hexdigest(),
        )

    def gate(self, side: Side, watch: Watch) -> GateReport:
        try:
            with self._bench.process(side) as candidate:
                return self._load_and_gate(candidate, watch)
        except CandidateFault as fault:
            return _failed(fault)

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        started = time.perf_counter()
        screening, gate = ScreeningTrial(self._bench, watch), None
        reason: Reason | None = None
        detail = ""
        try:
            with self._bench.pair(candidate, incumbent) as sides:
                gate = self._load_and_gate(sides[0], watch)
                _demand(gate)
                screening.run(sides)
        except CandidateFault as fault:
            reason, detail = fault.reason, fault.detail
            gate = gate or _failed(fault)
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
        started = time.perf_counter()
        found = ConfirmationTrial(self._bench, alpha, watch)
        reason: Reason | None = None
        detail = ""
        gate = self.gate(candidate, watch)
        try:
            _demand(gate)
            found.run(candidate, incumbent, baseline)
        except CandidateFault as fault:
            reason, detail = fault.reason, fault.detail
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
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch
    ) -> Comparison:
        started = time.perf_counter()
        try:
            pairs = self._bench.fresh_pairs(last, first, stage, watch)
        except CandidateFault as fault:
            raise MachineError(f"a tree that was kept before failed while compared: {fault}") from fault
        values = values_of(pairs)
        return Comparison(
            speedup=evidence.interval(values),
            seconds_per_call=(seconds_per_call(pairs, "B"), seconds_per_call(pairs, "A")),
            pair_sd=statistics.stdev(values),
            pairs=tuple(pairs),
            seconds=time.perf_counter() - started,
        )

    def profile(self, side: Side, watch: Watch) -> Profile:
        started = time.perf_counter()
        look = Look(self._bench, watch)
        look.take(side)
        return Profile(
            problems=tuple(look.problems),
            buckets=look.buckets,
            ceilings=self._roofs.of(cpu.identity(), measure_cpu),
            detail=look.detail,
            seconds=time.perf_counter() - started,
        )

    def close(self) -> None:
        pass

    def _load_and_gate(self, candidate: CandidateProcess, watch: Watch) -> GateReport:
        watch(Progress(stage="prepare"))
        candidate.await_loaded()
        return self._gate.check(candidate, watch)


def _demand(gate: GateReport) -> None:
    """Raise what the gate found as the candidate's fault."""
    if gate.reason is not None:
        raise CandidateFault(gate.reason, gate.detail)


def _failed(fault: CandidateFault) -> GateReport:
    return GateReport(passed=False, reason=fault.reason, detail=fault.detail)
