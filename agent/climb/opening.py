"""How a session begins: the run is opened or taken up, and what a crash left between intent and effect is mended."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from hillclimb.agent.climb.budget import BudgetLimits
from hillclimb.agent.climb.candidate import CandidateBuilder
from hillclimb.agent.climb.lookahead import Lookahead, lookahead_count
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.climb.supervision import JudgeSupervisor
from hillclimb.agent.climb.timekeeper import Timekeeper
from hillclimb.agent.climb.try_candidate import TrialContext
from hillclimb.agent.git.snapshot import BaseCommit, case_path, changed_fixed_file, find_base, store_case
from hillclimb.agent.machine.interrupts import Interrupts
from hillclimb.agent.machine.timing_device import require_timing_device
from hillclimb.agent.record.branch import COMMITTER, signature
from hillclimb.agent.record.entries import BaselinedEntry, OpenedEntry, SessionEntry, SettledEntry
from hillclimb.agent.record.ledger import Candidate
from hillclimb.agent.record.run import Run
from hillclimb.agent.screen.events import BaselinedEvent, OpenedEvent
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import BudgetSpent, UsageError
from hillclimb.harness.records import GateReport, Provenance, Side, Watch

_LOCK_RETRIES, _LOCK_RETRY_SECONDS = 10, 0.2


@dataclass(frozen=True)
class OpenSession:
    """A run that is ready to climb: the case as it stood when the run began, and all who take part."""

    tools: Tools
    interrupts: Interrupts
    started_at: float
    """When this session did."""
    run: Run
    case: Case
    opened: OpenedEntry
    timekeeper: Timekeeper
    context: TrialContext
    recovered: Candidate | None
    """A candidate whose verdict an earlier session recorded and this one carried out."""
    lookahead: Lookahead

    @property
    def limits(self) -> BudgetLimits:
        """The budgets in force."""
        return self.timekeeper.limits


@dataclass(frozen=True)
class SessionOpener:
    """One session's beginning."""

    request: ClimbRequest
    tools: Tools
    run: Run
    judge: JudgeSupervisor
    interrupts: Interrupts

    def open(self, watch: Watch) -> OpenSession:
        """Open the run, or take it up where it was left. Raises UsageError where the two do not fit together.

        Raises BudgetSpent where no time is left of the run's, or not enough to measure the baseline.
        """
        started = self.tools.clock.now()
        base = self._base()
        case = self._snapshot(base.commit)
        require_timing_device(case)
        timekeeper = self._timekeeper(case, started)
        builder = self._builder(case)
        baseline = builder.side(base.commit)
        self.judge.take_up(case.folder, self.run.folder / "judge.log")
        provenance = self.judge.ask(lambda judge: judge.describe())
        self._emit_opened(provenance, timekeeper.limits, started)
        opened = self.run.ledger.opened
        if opened:
            self._require_same_run(opened, case, provenance)
        self._set_deadline(timekeeper, started)
        try:
            gate = None if self.run.ledger.baselined else self._gate(baseline, watch)
        except BudgetSpent:
            self._begin(base, case, provenance, self._session(started, timekeeper.limits))
            raise
        opened, mended = self._begin(base, case, provenance, self._session(started, timekeeper.limits))
        context = TrialContext(
            builder,
            self.judge,
            provenance.sandbox,
            baseline,
            opened.alpha,
            timekeeper,
            lookahead_count(provenance),
        )
        if gate:
            self._measure_baseline(context, gate, watch)
        return OpenSession(
            tools=self.tools,
            interrupts=self.interrupts,
            started_at=started,
            run=self.run,
            case=case,
            opened=opened,
            timekeeper=timekeeper,
            context=context,
            recovered=mended,
            lookahead=Lookahead(context),
        )

    def _timekeeper(self, case: Case, started: float) -> Timekeeper:
        """Whoever holds this session to its budgets. Raises BudgetSpent where no time is left."""
        ledger, settings = self.run.ledger, case.settings
        alpha = settings.duel.alpha if self.request.alpha is None else self.request.alpha
        limits = self.request.budgets.resolve(settings.budgets)
        kept = Timekeeper(
            limits, self.tools.clock, settings.duel, ledger.opened.alpha if ledger.opened else alpha
        )
        if not kept.seconds_left(ledger.with_entries(self._session(started, limits))):
            raise kept.overrun(ledger)
        return kept

    def _set_deadline(self, kept: Timekeeper, started: float) -> None:
        """From here on the session ends with its budget, even in the middle of a step."""
        ledger, limits = self.run.ledger, kept.limits
        if limits.recorded:
            left = kept.seconds_left(ledger.with_entries(self._session(started, limits)))
            self.interrupts.set_deadline(left, lambda: kept.overrun(ledger))

    def _session(self, started: float, limits: BudgetLimits) -> SessionEntry:
        """This session's line in the ledger."""
        return SessionEntry(time=started, pid=os.getpid(), host=socket.gethostname(), budgets=limits.recorded)

    def _gate(self, baseline: Side, watch: Watch) -> GateReport:
        """Parity of the baseline, without which nothing can be a win. Raises UsageError where it fails."""
        gate = self.judge.ask(lambda judge: judge.gate(baseline, watch))
        if not gate.passed:
            raise UsageError(
                f"the baseline of {self.run.case} does not pass the gate ({gate.reason}: {gate.detail}); "
                "mend its workspace or its contract"
            )
        return gate

    def _base(self) -> BaseCommit:
        opened = self.run.ledger.opened
        if opened:
            return BaseCommit(opened.base, opened.snapshot)
        if self.run.branch.tip():
            raise UsageError(
                f"branch {self.run.branch.name} exists and {self.run.folder} has no ledger of it; choose another --tag"
            )
        self.run.branch.require_no_conflict()
        case, repository = Case(self.request.case), self.run.repository
        when = signature(COMMITTER, self.tools.clock.now())
        return find_base(repository, case, store_case(repository, case), when)

    def _snapshot(self, base: str) -> Case:
        """The case out of the base commit: what the user's files become later does not matter to the run."""
        tree = self.run.repository.resolve(f"{base}:{self._case_path}")
        if tree is None:
            raise UsageError(
                f"commit {base}, where the run began, is gone from the repository; start a new --tag"
            )
        return Case(self.run.trees.case(tree, self._case_path))

    def _builder(self, case: Case) -> CandidateBuilder:
        run = self.run
        entry = None if case.settings.command else case.settings.entry.partition(":")[0]
        return CandidateBuilder(run.repository, run.trees, self._case_path, case.settings.mutable, entry)

    @property
    def _case_path(self) -> str:
        opened = self.run.ledger.opened
        return opened.case_path if opened else case_path(self.run.repository, self.request.case)

    def _emit_opened(self, provenance: Provenance, limits: BudgetLimits, started: float) -> None:
        run, now = self.run, self.tools.clock.now()
        with_session = run.ledger.with_entries(self._session(started, limits))
        here = {
            "resumed": run.ledger.opened is not None,
            "sources": self.request.sources,
            "budgets": limits.recorded,
            "left": limits.remaining(with_session, now) if limits.recorded else None,
        }
        event = OpenedEvent.of(run.ledger, run.folder, time=now, provenance=provenance)
        self.tools.emit(event.model_copy(update=here))

    def _require_same_run(self, opened: OpenedEntry, case: Case, provenance: Provenance) -> None:
        """Raises UsageError unless this session would judge by the same rules as the run's first one."""
        remedy = "start a new run with --tag"
        require_same_rules(opened, provenance)
        changed = changed_fixed_file(self.run.repository, opened.base, case, self.request.case)
        if changed:
            raise UsageError(
                f"{changed} is not what it was when run {self.run.tag} began; put it back, or {remedy}"
            )
        for name, asked, was in (
            ("seed", self.request.seed, opened.seed),
            ("alpha", self.request.alpha, opened.alpha),
        ):
            if asked is not None and asked != was:
                raise UsageError(
                    f"run {self.run.tag} has {name} {was}, not {asked}; drop --{name}, or {remedy}"
                )
        if provenance.device != opened.provenance.device:
            self.tools.notice(
                f"the run began on {opened.provenance.device} and goes on on {provenance.device}"
            )

    def _begin(
        self, base: BaseCommit, case: Case, provenance: Provenance, session: SessionEntry
    ) -> tuple[OpenedEntry, Candidate | None]:
        """The run's ledger and branch are there from here on, and this session is in it; what was mended."""
        opened = self.run.ledger.opened or self._open(base, case, provenance)
        mended = self._recover(opened)
        self.run.ledger.append(session)
        return opened, mended

    def _open(self, base: BaseCommit, case: Case, provenance: Provenance) -> OpenedEntry:
        asked = self.request
        opened = OpenedEntry(
            schema_version=1,
            time=self.tools.clock.now(),
            case=case.name,
            case_path=self._case_path,
            tag=self.run.tag,
            seed=asked.seed or 0,
            alpha=case.settings.duel.alpha if asked.alpha is None else asked.alpha,
            base=base.commit,
            snapshot=base.is_snapshot,
            provenance=provenance,
        )
        self.run.ledger.append(opened)
        return opened

    def _recover(self, opened: OpenedEntry) -> Candidate | None:
        """Carry out what the ledger says was about to happen, and see that the branch stands where it should."""
        run = self.run
        self._remove_stale_locks()
        run.branch.require_not_checked_out()
        if not run.ledger.wins and run.branch.tip() is None:
            run.branch.start(opened.base)
        pending = run.ledger.pending
        mended = pending if pending and pending.judged else None
        if mended:
            run.branch.apply_verdict(mended)
            kept = mended.judged is not None and mended.judged.kept
            run.ledger.append(SettledEntry(n=mended.n, webhook=self.tools.notifier.webhook(mended.n, kept)))
        run.branch.require_at(run.ledger.incumbent)
        return mended

    def _remove_stale_locks(self) -> None:
        """A killed session's git may still be at work for a moment; a lock that stays is nobody's."""
        for _ in range(_LOCK_RETRIES):
            if not self.run.branch.stale_locks():
                return
            self.tools.clock.sleep(_LOCK_RETRY_SECONDS)
        for path in self.run.branch.stale_locks():
            self.run.disk.remove(path)

    def _measure_baseline(self, context: TrialContext, gate: GateReport, watch: Watch) -> None:
        """The baseline against itself: its time, and the noise floor."""
        baseline = context.baseline
        noise = self.judge.ask(lambda judge: judge.compare(baseline, baseline, "noise", watch))
        self.run.write_samples("noise", noise.model_dump_json())
        line = BaselinedEntry(
            time=self.tools.clock.now(),
            gate=gate,
            seconds_per_call=noise.seconds_per_call[0],
            pair_sd=noise.pair_sd,
            noise=noise.speedup,
            metrics=noise.metrics,
            seconds=noise.seconds,
        )
        self.run.ledger.append(line)
        self.tools.emit(BaselinedEvent.of(line))


def require_same_rules(opened: OpenedEntry, provenance: Provenance) -> None:
    """Raises UsageError where contract, benchmarks or harness are not those that the run began with."""
    for name in ("contract", "benchmarks", "harness"):
        was, now = getattr(opened.provenance, name), getattr(provenance, name)
        if was != now:
            raise UsageError(
                f"the {name} changed since run {opened.tag} began (sha256 {was[:12]}, now {now[:12]}), and verdicts "
                "by different rules cannot stand in one ledger; put it back, or start a new run with --tag. "
                "history, show, report and review of this run still work"
            )
