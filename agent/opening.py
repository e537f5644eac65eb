"""How a session begins: the run is opened or taken up, and what a crash left between intent and effect is mended."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from agent.branch import COMMITTER, signature
from agent.budget import Limits
from agent.candidate import Builder
from agent.entries import Baselined, Opened, Session, Settled
from agent.events import BaselinedEvent, OpenedEvent
from agent.ledger import Candidate
from agent.lookahead import Lookahead, depth
from agent.place import expect_clock
from agent.request import Request, Tools
from agent.run import Run
from agent.snapshot import Base, case_path, changed_fixed_file, find_base, store_case
from agent.supervision import Supervised
from agent.trial import Court
from harness.case.case import Case
from harness.errors import UsageError
from harness.judge.protocol import Watch
from harness.records import GateReport, Provenance, Side

_ORPHANS_LOOKS, _ORPHANS_SECONDS = 10, 0.2


@dataclass(frozen=True)
class Scene:
    """A run that is ready to climb: the case as it stood when the run began, and all who take part."""

    run: Run
    case: Case
    opened: Opened
    limits: Limits
    court: Court
    mended: Candidate | None
    """A candidate whose verdict an earlier session recorded and this one carried out."""
    lookahead: Lookahead


@dataclass(frozen=True)
class Opening:
    """One session's beginning."""

    request: Request
    tools: Tools
    run: Run
    judge: Supervised
    watch: Watch

    def begin(self) -> Scene:
        """Open the run, or take it up where it was left. Raises UsageError where the two do not fit together."""
        started = self.tools.clock.now()
        base = self._base()
        case = self._snapshot(base.commit)
        expect_clock(case)
        builder = self._builder(case)
        baseline = builder.side(base.commit)
        self.judge.take_up(case.folder, self.run.folder / "judge.log")
        provenance = self.judge.ask(lambda judge: judge.describe())
        limits = self.request.budgets.over(case.settings.budgets)
        self._announce(provenance, limits)
        opened = self.run.ledger.opened
        if opened:
            self._refuse_other(opened, case, provenance)
        gate = None if self.run.ledger.baselined else self._gate(baseline)
        opened = opened or self._open(base, case, provenance)
        mended = self._mend(opened)
        self.run.ledger.append(Session(time=started, pid=os.getpid(), host=socket.gethostname()))
        court = Court(builder, self.judge, provenance.sandbox, baseline, opened.alpha, depth(provenance))
        if gate:
            self._measure_baseline(court, gate)
        return Scene(self.run, case, opened, limits, court, mended, Lookahead(court))

    def _gate(self, baseline: Side) -> GateReport:
        """Parity of the baseline, without which nothing can be a win. Raises UsageError where it fails."""
        gate = self.judge.ask(lambda judge: judge.gate(baseline, self.watch))
        if not gate.passed:
            raise UsageError(
                f"the baseline of {self.run.case} does not pass the gate ({gate.reason}: {gate.detail}); "
                "mend its workspace or its contract"
            )
        return gate

    def _base(self) -> Base:
        opened = self.run.ledger.opened
        if opened:
            return Base(opened.base, opened.snapshot)
        if self.run.branch.tip():
            raise UsageError(
                f"branch {self.run.branch.name} exists and {self.run.folder} has no ledger of it; choose another --tag"
            )
        self.run.branch.refuse_obstacle()
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
        return Case(self.run.trees.case(tree, self.run.case))

    def _builder(self, case: Case) -> Builder:
        run = self.run
        return Builder(run.repository, run.trees, self._case_path, case.settings.mutable)

    @property
    def _case_path(self) -> str:
        opened = self.run.ledger.opened
        return opened.case_path if opened else case_path(self.run.repository, self.request.case)

    def _announce(self, provenance: Provenance, limits: Limits) -> None:
        run, now = self.run, self.tools.clock.now()
        here = {
            "resumed": run.ledger.opened is not None,
            "sources": self.request.sources,
            "left": limits.left(run.ledger, now),
        }
        event = OpenedEvent.of(run.ledger, run.folder, time=now, provenance=provenance)
        self.tools.emit(event.model_copy(update=here))

    def _refuse_other(self, opened: Opened, case: Case, provenance: Provenance) -> None:
        """Raises UsageError unless this session would judge by the same rules as the run's first one."""
        remedy = "start a new run with --tag"
        refuse_other_rules(opened, provenance)
        changed = changed_fixed_file(case, self.request.case)
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

    def _open(self, base: Base, case: Case, provenance: Provenance) -> Opened:
        asked = self.request
        opened = Opened(
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

    def _mend(self, opened: Opened) -> Candidate | None:
        """Carry out what the ledger says was about to happen, and see that the branch stands where it should."""
        run = self.run
        self._remove_stale_locks()
        run.branch.refuse_checked_out()
        if not run.ledger.wins and run.branch.tip() is None:
            run.branch.start(opened.base)
        pending = run.ledger.pending
        mended = pending if pending and pending.judged else None
        if mended:
            run.branch.settle(mended)
            kept = mended.judged is not None and mended.judged.kept
            run.ledger.append(Settled(n=mended.n, webhook=self.tools.notifier.webhook(mended.n, kept)))
        run.branch.expect_at(run.ledger.incumbent)
        return mended

    def _remove_stale_locks(self) -> None:
        """A killed session's git may still be at work for a moment; a lock that stays is nobody's."""
        for _ in range(_ORPHANS_LOOKS):
            if not self.run.branch.stale_locks():
                return
            self.tools.clock.sleep(_ORPHANS_SECONDS)
        for path in self.run.branch.stale_locks():
            self.run.disk.remove(path)

    def _measure_baseline(self, court: Court, gate: GateReport) -> None:
        """The baseline against itself: its time, and the noise floor."""
        baseline = court.baseline
        noise = self.judge.ask(lambda judge: judge.compare(baseline, baseline, "noise", self.watch))
        self.run.write_samples("noise", noise.model_dump_json())
        line = Baselined(
            time=self.tools.clock.now(),
            gate=gate,
            seconds_per_call=noise.seconds_per_call[0],
            pair_sd=noise.pair_sd,
            noise=noise.speedup,
            seconds=noise.seconds,
        )
        self.run.ledger.append(line)
        self.tools.emit(BaselinedEvent.of(line))


def refuse_other_rules(opened: Opened, provenance: Provenance) -> None:
    """Raises UsageError where contract, benchmarks or harness are not those that the run began with."""
    for name in ("contract", "benchmarks", "harness"):
        was, now = getattr(opened.provenance, name), getattr(provenance, name)
        if was != now:
            raise UsageError(
                f"the {name} changed since run {opened.tag} began (sha256 {was[:12]}, now {now[:12]}), and verdicts "
                "by different rules cannot stand in one ledger; put it back, or start a new run with --tag"
            )
