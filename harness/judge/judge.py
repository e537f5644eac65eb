"""The judge of one case on one device: gate, screening, decision, measurement. Runs in a process of its own."""

from __future__ import annotations

import hashlib
import secrets
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.case.contract import Contract
from hillclimb.harness.case.digest import benchmarks_digest, contract_digest, harness_digest
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.duel.gated_problems import (
    CONFIRMED_CHAINS,
    CONFIRMED_MIXED_CALLS,
    CONFIRMED_NEIGHBOURS,
    SCREENED_NEIGHBOURS,
    SCREENED_SEEDS,
)
from hillclimb.harness.duel.inputs import call_signature
from hillclimb.harness.duel.pairs import log_ratios, seconds_per_call
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launcher import CandidateLauncher
from hillclimb.harness.duel.process.parameters import bound, draw_parameters
from hillclimb.harness.duel.secret_random import SecretRandom
from hillclimb.harness.errors import (
    CandidateFault,
    CaseError,
    IncumbentFault,
    MachineError,
    UnreapedError,
    UsageError,
)
from hillclimb.harness.judge.contract_mutants import ContractMutants, find_surviving_mutants
from hillclimb.harness.judge.gate import ParityGate
from hillclimb.harness.judge.health import GpuHealth
from hillclimb.harness.judge.protocol import EmptyAnswer
from hillclimb.harness.judge.trial import ConfirmationTrial, ScreeningTrial
from hillclimb.harness.profile import vendor_tools
from hillclimb.harness.profile.counters import ProblemCounters
from hillclimb.harness.profile.lanes import count_lanes
from hillclimb.harness.profile.profile import SideProfile
from hillclimb.harness.records import (
    Comparison,
    Confirmation,
    GateReport,
    LaneReport,
    OracleReport,
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


class CaseJudge:
    """Implements hillclimb.harness.judge.protocol.Judge in this process.

    Of a method call nothing is left but candidates' processes on their way out. The next one or `clean_up` waits for
    them.
    """

    def __init__(self, case: Case, rung: Rung, device: Device) -> None:
        self._seed = secrets.token_bytes(32)
        secret = SecretRandom(self._seed)
        contract = load_contract(
            case.contract_file,
            device.torch_device,
            device.dtypes,
            case.settings.gate.contract_seconds,
            case.session_model,
        )
        _require_surface(case, contract)
        signatures = {
            name: call_signature(
                contract,
                name,
                device.torch_device,
                is_run=contract.work(problem).bytes <= device.max_problem_bytes,
            )
            for name, problem in contract.problems.items()
        }
        self._parameters = draw_parameters(contract, device.torch_device, secret)
        if self._parameters is not None:
            _require_python(case)
        contract = bound(contract, self._parameters)
        launcher = CandidateLauncher(case, rung, device, signatures, self._parameters)
        self._factory: DuelFactory | None = DuelFactory(case, contract, launcher, device, secret)
        self._duels.check_contract()
        self._health = GpuHealth(launcher, device)
        gate = case.settings.gate
        self._gate = ParityGate(
            gate.seeds,
            gate.error_budget,
            secret,
            device.torch_device,
            device.available_bytes,
        )

    @property
    def _duels(self) -> DuelFactory:
        """Raises MachineError once the judge is closed."""
        if self._factory is None:
            raise MachineError("the judge was closed; open another one")
        return self._factory

    def describe(self) -> Provenance:
        device = self._duels.device
        return Provenance(
            contract=contract_digest(self._duels.case),
            benchmarks=benchmarks_digest(self._duels.case),
            harness=harness_digest(),
            device=device.name(),
            device_id=device.identity(),
            sandbox=self._duels.launcher.rung.name,
            software=device.software(),
            seed_commitment=hashlib.sha256(self._seed).hexdigest(),
        )

    def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
        self._duels.launcher.precompile(side, parent)
        return EmptyAnswer()

    def gate(self, side: Side, watch: Watch) -> GateReport:
        self._duels.reap()
        self._verify_device()
        report = self._report(side, watch)
        self._health.suspect(report.reason, report.detail)
        return report

    def check_oracle(self, watch: Watch) -> OracleReport:
        bench, settings = self._duels, self._duels.case.settings
        mutants = ContractMutants(
            bench.contract, settings.gate.error_budget, bench.device.torch_device, bench.case.contract_file
        )
        is_narrow_forbidden = not settings.policy.reduced_precision
        return find_surviving_mutants(
            mutants, bench.gated_problems(), bench.timed_problems(), is_narrow_forbidden, watch
        )

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        _require_kernel(candidate)
        self._require_timing_device()
        self._verify_device()
        started = time.perf_counter()
        screening, gate = ScreeningTrial(self._duels, watch), None
        reason: Reason | None = None
        detail = ""
        try:
            few = self._duels.draw_gated_problems(SCREENED_NEIGHBOURS)
            gated = replace(few, seeds=SCREENED_SEEDS)
            with self._duels.spawn_pair(candidate, incumbent) as sides:
                watch(Progress(stage="prepare"))
                self._duels.prepare_pairs([sides], watch, gated=gated)
                gate = self._gate.check(sides[0], gated, watch)
                _demand(gate)
                screening.run(sides)
        except CandidateFault as fault:
            reason, detail = fault.reason, fault.detail
            gate = gate or _failed(fault)
            self._health.suspect(reason, detail)
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
        _require_kernel(candidate)
        self._require_timing_device()
        started = time.perf_counter()
        if self._duels.device.kind == "cuda" and not self._duels.clocks.is_calibrated:
            self.compare(incumbent, incumbent, "noise", watch)  # a judge that was started anew
        self._verify_device()
        many = self._duels.draw_gated_problems(CONFIRMED_NEIGHBOURS)
        gated = replace(many, mixed_calls=CONFIRMED_MIXED_CALLS, chains=CONFIRMED_CHAINS)
        found, gate = ConfirmationTrial(self._duels, alpha, watch, gated), None
        reason: Reason | None = None
        detail = ""

        def check(process: CandidateProcess) -> None:
            nonlocal gate
            gate = self._gate.check(process, gated, watch)
            _demand(gate)

        try:
            found.run(candidate, incumbent, baseline, check)
            detail = found.note
        except CandidateFault as fault:
            reason, detail = fault.reason, fault.detail
            gate = gate or _failed(fault)
            self._health.suspect(reason, detail)
        assert gate is not None
        return Confirmation(
            gate=gate,
            reason=reason,
            detail=detail,
            alpha=alpha,
            e_value=found.e_value,
            decided=found.decided,
            refuted=found.refuted,
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
        self._require_timing_device()
        self._verify_device()
        started = time.perf_counter()
        try:
            pairs = self._duels.measure_fresh_pairs(last, first, stage, watch, suite)
        except CandidateFault as fault:
            raise IncumbentFault(f"a kernel failed while it was compared: {fault}") from fault
        if stage == "noise":
            self._duels.clocks.calibrate(pairs)
        values = log_ratios(pairs)
        return Comparison(
            speedup=evidence.interval(values),
            seconds_per_call=(seconds_per_call(pairs, "B"), seconds_per_call(pairs, "A")),
            pair_sd=statistics.stdev(values),
            pairs=tuple(pairs),
            seconds=time.perf_counter() - started,
        )

    def profile(self, side: Side, watch: Watch, suite: str = "") -> Profile:
        self._require_timing_device()
        self._duels.reap()
        started = time.perf_counter()
        look = SideProfile(self._duels, watch)
        look.measure(side, suite)
        counted = ProblemCounters("") if suite else vendor_tools.count_hardware(self._duels, side)
        lanes = () if suite or not self._duels.case.can_count_lanes else self.lanes(side, watch).problems
        return Profile(
            problems=tuple(look.problems),
            buckets=look.buckets,
            counters=counted.kernels,
            lanes=lanes,
            ceilings=self._duels.device.ceilings(),
            detail="; ".join(filter(None, (look.detail, counted.failure))),
            seconds=time.perf_counter() - started,
        )

    def lanes(self, side: Side, watch: Watch, problems: Sequence[str] = ()) -> LaneReport:
        return count_lanes(self._duels, side, problems, watch)

    def quarantine(self, error: UnreapedError) -> None:
        """A process that cannot be ended may hold the device: no judge uses it before a person has looked."""
        self._duels.device.quarantine(str(error), error.pid)

    def clean_up(self) -> EmptyAnswer:
        """Wait for processes that are no longer needed; while nothing is asked there is time for it."""
        self._duels.reap()
        return EmptyAnswer()

    def close(self) -> None:
        if self._factory is None:
            return
        try:
            self._duels.reap()
        except UnreapedError as error:
            self.quarantine(error)
            raise
        finally:
            self._duels.launcher.close()
            if self._parameters is not None:
                self._parameters.close()
            self._duels.device.close()
            self._factory = None

    def _verify_device(self) -> None:
        """Where the last candidate left a doubt, settle it, once all of its processes are gone."""
        if self._health.is_suspect:
            self._duels.reap()
            self._health.verify()

    def _report(self, side: Side, watch: Watch) -> GateReport:
        gated = self._duels.draw_gated_problems()
        try:
            if self._duels.device.tensors == "torch":
                self._duels.launcher.compile(side)
            with self._duels.launcher.launch(side) as candidate:
                watch(Progress(stage="prepare"))
                candidate.await_loaded()
                candidate.take_parameters()
                self._duels.compile_gated(candidate, gated, watch)
                self._duels.seal([(0, candidate)])
                return self._gate.check(candidate, gated, watch)
        except CandidateFault as fault:
            return _failed(fault)

    def _require_timing_device(self) -> None:
        """Raises UsageError where kernels are interpreted: how long that takes says nothing of a GPU."""
        if self._duels.device.tensors == "torch":
            raise UsageError(
                f"{self._duels.case.name} is for an NVIDIA GPU, and none is here: nothing can be timed; go where there "
                "is one, or use `hillclimb check`, which compiles for it and interprets the small problems"
            )


def _require_surface(case: Case, contract: Contract) -> None:
    """Raises CaseError where contract.py is for another surface: `model_path` is a session's alone."""
    wanted = "session" if contract.is_session else "kernel"
    if case.settings.surface != wanted:
        problem = f"value {case.settings.surface!r}, and contract.py is for the surface {wanted!r}"
        raise CaseError(case.folder / "case.yaml", "surface", problem, f"set surface: {wanted}")


def _require_python(case: Case) -> None:
    """Raises CaseError for a compiled entry: nothing could return the function that is called."""
    if case.settings.is_compiled:
        problem = f"value {case.settings.entry!r} is compiled, and Contract.parameters gives some"
        raise CaseError(
            case.folder / "case.yaml", "entry", problem, "take them as inputs, or name a .py file"
        )


def _require_kernel(candidate: Side) -> None:
    """Raises UsageError for a yardstick: a library wins nothing."""
    if candidate.is_yardstick:
        raise UsageError("a yardstick cannot be the candidate; let it be what is to be beaten")


def _demand(gate: GateReport) -> None:
    """Raise what the gate found as the candidate's fault."""
    if gate.reason is not None:
        raise CandidateFault(gate.reason, gate.detail)


def _failed(fault: CandidateFault) -> GateReport:
    return GateReport(passed=False, reason=fault.reason, detail=fault.detail)
