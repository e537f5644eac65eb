"""The climb: propose, build, judge, record, again, until a budget, the patience or the user ends it.

The ledger is the only state. Every session begins by reading it and mending what a crash may have left between
an intent and its effect, so resuming, starting, and coming back from a full disk are one path.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn

from agent.background import Background
from agent.branch import COMMITTER, signature
from agent.budget import elapsed
from agent.disk import Disk
from agent.entries import Finished, Judged, Notified, Profiled, Proposed, Remeasured, Settled
from agent.events import FinishedEvent, JudgedEvent, ProgressEvent, ProposedEvent
from agent.interrupts import Interrupts
from agent.ledger import Candidate, Ledger
from agent.opening import Opening, Scene, refuse_other_rules
from agent.place import expect_clock
from agent.proposal import Proposal, Proposer, reads_profile
from agent.request import MakeJudge, MakeProposer, Request, Tools
from agent.rhythm.workbook import refresh
from agent.run import LEDGER, Run, choose_tag, open_run, run_folder
from agent.snapshot import case_name
from agent.supervision import Supervised
from agent.trailers import Dossier, write_message
from agent.trial import Outcome, to_samples, to_verdict, try_candidate
from agent.views import Views
from harness.case.case import Case
from harness.errors import (
    BudgetSpent,
    HillclimbError,
    Interrupted,
    MachineError,
    Plateau,
    Stop,
    StorageError,
)
from harness.judge.protocol import Progress, Watch
from harness.records import Profile, Provenance

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_MOST_RETURNS = 60
"""Times that the same trouble may come back after the disk of the runs took writes again."""

_DRAWING_PAUSE = 60.0
"""Seconds between two drawings of progress.png: drawing loads the machine that is measuring."""


def climb(
    request: Request, make_judge: MakeJudge, make_proposer: MakeProposer, tools: Tools
) -> FinishedEvent:
    """Climb until something ends it; takes a run up by itself where it was left.

    Raises UsageError for what a person must mend, MachineError where the machine keeps failing. A disk that
    refuses writes is waited for.
    """
    repository = tools.open_repository(request.case)
    case = case_name(repository, request.case)
    tag = choose_tag(repository, case, request.tag, tools.clock)
    if not (run_folder(repository, case, tag) / LEDGER).exists():
        expect_clock(Case(request.case))  # a case that cannot be climbed leaves no run behind

    once = _made_once(make_proposer)

    def session() -> FinishedEvent:
        with open_run(repository, case, tag, tools.disk, tools.clock) as run:
            try:
                stop = Climb(request, once, tools, run, judge, interrupts).finish()
            except HillclimbError:
                with suppress(StorageError):
                    _note_posts(run, tools)
                raise
            return _tell_end(stop, run, tools)

    with Interrupts() as interrupts, _supervised(make_judge, tools, interrupts) as judge:
        try:
            return _outlast_disk_trouble(session, repository.root / "runs", tools, interrupts)
        except Interrupted as interrupted:
            finished = _state(interrupted, run_folder(repository, case, tag), tools.clock.now())
            tools.emit(finished)
            return finished


def _supervised(make_judge: MakeJudge, tools: Tools, interrupts: Interrupts) -> closing[Supervised]:
    return closing(Supervised(make_judge, tools.notice, interrupts, tools.clock.sleep))


class Climb:
    """One session of one run."""

    def __init__(
        self,
        request: Request,
        make_proposer: MakeProposer,
        tools: Tools,
        run: Run,
        judge: Supervised,
        interrupts: Interrupts,
    ) -> None:
        self._request, self._make_proposer = request, make_proposer
        self._tools, self._run, self._judge, self._interrupts = tools, run, judge, interrupts
        self._views = Views(run.folder, run.disk, tools.notice, tools.draw, tools.mirror)
        self._began = tools.clock.now()
        self._drawn = -_DRAWING_PAUSE
        self._judged = 0

    def finish(self) -> Stop:
        """Climb to the end, whatever ends it; what is to be said about the end is in the ledger then."""
        try:
            scene = Opening(self._request, self._tools, self._run, self._judge, self._watch(None)).begin()
            self._take_stock(scene)
            proposer = self._make_proposer(self._background(scene))
            try:
                self._climb(scene, proposer)
            except StorageError:
                raise  # the same proposer goes on once the disk takes writes again
            except (BudgetSpent, Plateau) as stop:
                proposer.finish(self._run.ledger)
                self._remeasure(scene)
                self._look_inside(scene)
                self._close(stop, proposer.importances(self._run.ledger))
                self._views.mirror()
                scene.lookahead.end()
                self._clear(scene)
                return stop
            except HillclimbError:
                with suppress(HillclimbError):
                    proposer.finish(self._run.ledger)
                raise
        except Interrupted as stop:
            with suppress(StorageError):
                self._close(stop, {})
            return stop

    def _climb(self, scene: Scene, proposer: Proposer) -> NoReturn:
        """The loop. Raises the Stop that ends it."""
        while True:
            candidate = self._take_up() or self._propose(proposer, scene)
            scene.lookahead.announce(proposer, candidate, self._run.ledger)
            outcome = try_candidate(scene.court, self._run.ledger, candidate, self._watch(candidate.n))
            self._record(candidate, outcome, scene)

    def _take_up(self) -> Candidate | None:
        """The candidate that an earlier session left without a verdict."""
        pending = self._run.ledger.pending
        if pending:
            self._announce(pending)
        return pending

    def _announce(self, candidate: Candidate) -> None:
        self._tools.emit(ProposedEvent.of(candidate.n, candidate.proposal, self._tools.clock.now()))

    def _background(self, scene: Scene) -> Background:
        return Background(
            case=scene.case,
            seed=scene.opened.seed,
            folder=self._run.folder,
            files=scene.court.builder.texts,
            disk=self._run.disk,
            clock=self._tools.clock,
            emit=self._tools.emit,
            waiting=self._interrupts.window,
            may_spend=scene.limits.may_spend,
            ahead=scene.court.ahead,
        )

    def _propose(self, proposer: Proposer, scene: Scene) -> Candidate:
        ledger, proposal = self._run.ledger, self._await_idea(proposer, scene)
        n = len(ledger.candidates) + 1
        ledger.append(Proposed(n=n, time=self._tools.clock.now(), proposal=proposal))
        self._announce(ledger.candidates[-1])
        return ledger.candidates[-1]

    def _await_idea(self, proposer: Proposer, scene: Scene) -> Proposal:
        """The next proposal, however long it takes. Raises the Stop that comes first."""
        while True:
            self._interrupts.check()
            scene.limits.check(self._run.ledger, self._tools.clock.now())
            if not self._run.ledger.profiles or reads_profile(proposer, self._run.ledger):
                self._look_inside(scene)
            _note_posts(self._run, self._tools)
            proposal = proposer.propose(self._run.ledger)
            if proposal is None:
                raise Plateau("the proposer has no ideas left")
            if isinstance(proposal, Proposal):
                return proposal
            with self._interrupts.window():
                self._tools.clock.sleep(proposal.seconds)

    def _look_inside(self, scene: Scene) -> None:
        """Profile the incumbent, once: for proposers and readers, and decides nothing.

        The baseline always is, and the last win of a run that comes to its end; others where a proposer reads it.
        What goes wrong is said and recorded, and the climb goes on without.
        """
        ledger = self._run.ledger
        if ledger.is_profiled:
            return
        incumbent, watch = scene.court.builder.side(ledger.incumbent), self._watch(None)
        try:
            profile = self._judge.ask(lambda judge: judge.profile(incumbent, watch))
        except StorageError:
            raise
        except MachineError as error:
            self._tools.notice(f"the incumbent was not profiled: {error}")
            profile = Profile(problems=(), detail=f"not profiled: {error}")
        ledger.append(Profiled(time=self._tools.clock.now(), commit=ledger.incumbent, profile=profile))

    def _record(self, candidate: Candidate, outcome: Outcome, scene: Scene) -> None:
        """Samples, commit, intent, ref, done: in an order in which a crash at any point loses nothing."""
        run, n = self._run, candidate.n
        run.write_samples(str(n), to_samples(outcome, n).model_dump_json())
        verdict = to_verdict(outcome, n, self._tools.clock.now(), run.ledger.incumbent)
        run.ledger.append(self._committed(candidate, verdict, scene))
        run.branch.settle(run.ledger.candidates[-1])
        run.ledger.append(Settled(n=n, webhook=self._tools.notifier.webhook(n, verdict.kept)))
        self._judged += 1
        self._views.update(run.ledger, run.ledger.candidates[-1])
        self._show(run.ledger.candidates[-1], scene)

    def _committed(self, candidate: Candidate, verdict: Judged, scene: Scene) -> Judged:
        """The verdict with the commit that states it, made but not yet pointed at."""
        if verdict.tree is None:
            return verdict
        run = self._run
        dossier = Dossier(
            run=run.name,
            opened=scene.opened,
            settings=scene.case.settings,
            provenance=self._provenance(scene),
            proposal=candidate.proposal,
            call=run.ledger.call_of(candidate),
            judged=verdict,
            confirming=candidate.confirming or run.ledger.candidates[-1].confirming,
        )
        author = signature(candidate.proposal.author, verdict.time)
        by = signature(COMMITTER, verdict.time)
        tree = self._annotated(verdict.tree, verdict, scene) if verdict.kept else verdict.tree
        commit = run.repository.commit(tree, [verdict.parent], write_message(dossier), author, by)
        ref = run.branch.ref if verdict.kept else run.branch.rejected_ref(verdict.n)
        return verdict.model_copy(update={"commit": commit, "ref": ref})

    def _annotated(self, tree: str, win: Judged, scene: Scene) -> str:
        """A win's tree with the candidate set and the notes in docs/ brought up to it."""
        after = self._run.ledger.supposing(win, Settled(n=win.n))
        builder = scene.court.builder
        return builder.annotate(tree, refresh(builder.texts(tree), after))

    def _provenance(self, scene: Scene) -> Provenance:
        """Of the judge that decided, which may be another process than the one that opened the run, and be gone."""
        provenance = self._judge.answered_by or scene.opened.provenance
        refuse_other_rules(scene.opened, provenance)
        return provenance

    def _take_stock(self, scene: Scene) -> None:
        """At the start of a session: the views are made whole, and a verdict carried out late is told."""
        self._views.rebuild_table(self._run.ledger)
        if scene.mended:
            self._announce(scene.mended)
            self._show(scene.mended, scene)

    def _show(self, candidate: Candidate, scene: Scene) -> None:
        """Throw away the folders that are not needed any more, and tell whoever watches."""
        run, now, judged = self._run, self._tools.clock.now(), candidate.judged
        self._clear(scene)
        if judged is None:
            return
        if judged.kept and now - self._drawn >= _DRAWING_PAUSE:
            self._drawn = now
            self._views.draw()
        self._tools.emit(
            JudgedEvent.of(
                judged,
                run.ledger,
                time=now,
                elapsed=elapsed(run.ledger, now),
                per_hour=3600 * self._judged / max(now - self._began, 1e-9),
                left=scene.limits.left(run.ledger, now),
            )
        )

    def _clear(self, scene: Scene) -> None:
        """Only trees that are still needed stay."""
        incumbent = scene.court.builder.side(self._run.ledger.incumbent)
        needed = (scene.case.folder, Path(scene.court.baseline.tree), Path(incumbent.tree))
        self._run.trees.keep_only([*needed, *scene.lookahead.folders])

    def _remeasure(self, scene: Scene) -> None:
        """First commit against last, measured: step gains are never multiplied.

        What goes wrong is said: the run is over, and is closed all the same.
        """
        ledger = self._run.ledger
        last = ledger.remeasured.commit if ledger.remeasured else scene.opened.base
        if ledger.incumbent == last:
            return
        incumbent = scene.court.builder.side(ledger.incumbent)
        watch = self._watch(None)
        try:
            measured = self._judge.ask(
                lambda judge: judge.compare(scene.court.baseline, incumbent, "cumulative", watch)
            )
        except StorageError:
            raise
        except MachineError as error:
            self._tools.notice(f"first commit and last were not measured against each other: {error}")
            return
        self._run.write_samples("remeasured", measured.model_dump_json())
        ledger.append(
            Remeasured(
                time=self._tools.clock.now(),
                commit=ledger.incumbent,
                speedup=measured.speedup,
                seconds_per_call=measured.seconds_per_call,
            )
        )

    def _close(self, stop: Stop, importances: dict[str, float]) -> None:
        """Write down why the climb ended, once."""
        ledger, reason = self._run.ledger, str(stop)
        if ledger.opened and not (ledger.finished and ledger.finished.reason == reason):
            interrupted = isinstance(stop, Interrupted)
            now = self._tools.clock.now()
            ledger.append(Finished(time=now, reason=reason, interrupted=interrupted, importances=importances))
        self._views.rebuild_table(ledger)
        self._views.draw()

    def _watch(self, n: int | None) -> Watch:
        def watch(progress: Progress) -> None:
            self._tools.emit(
                ProgressEvent(
                    time=self._tools.clock.now(),
                    n=n,
                    stage=progress.stage,
                    done=progress.done,
                    of=progress.of,
                    speedup=progress.speedup,
                )
            )

        return watch


def _made_once(make: MakeProposer) -> MakeProposer:
    """A proposer outlives the sessions that a refusing disk ends, and what it has under way with it."""
    made: list[Proposer] = []

    def once(background: Background) -> Proposer:
        if not made:
            made.append(make(background))
        return made[0]

    return once


def _tell_end(stop: Stop, run: Run, tools: Tools) -> FinishedEvent:
    """Tell whoever watches, and write down what became of the last posts while the run is still this process's."""
    finished = _state(stop, run.folder, tools.clock.now())
    tools.emit(finished)
    tools.notifier.close()
    with suppress(StorageError):
        _note_posts(run, tools)
    return finished


def _note_posts(run: Run, tools: Tools) -> None:
    """Write down what became of posts that went out meanwhile."""
    for n, webhook in tools.notifier.outcomes():
        run.ledger.append(Notified(n=n, time=tools.clock.now(), webhook=webhook))


def _outlast_disk_trouble(
    session: Callable[[], FinishedEvent], folder: Path, tools: Tools, interrupts: Interrupts
) -> FinishedEvent:
    """Sessions until one comes to its end: a disk that refuses is waited for, said once, and the ledger read anew.

    Raises MachineError where the runs' disk takes writes and the same trouble comes back all the same: it is another's.
    """
    pause, said, again = _FIRST_WAIT, "", 0
    while True:
        try:
            return session()
        except StorageError as error:
            again = again + 1 if str(error) == said else 0
            if again == _MOST_RETURNS:
                raise MachineError(
                    f"{error}; it came back {again} times, though {folder} can be written"
                ) from error
            if str(error) != said:
                said = str(error)
                tools.notice(
                    f"{error}. Everything recorded is safe; the climb waits until the disk takes writes again"
                )
        refused = True
        while refused:
            with interrupts.window():
                tools.clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_WAIT)
            refused = _refuses(tools.disk, folder)


def _refuses(disk: Disk, folder: Path) -> bool:
    try:
        disk.probe(folder)
    except StorageError:
        return True
    return False


def _state(stop: Stop, folder: Path, now: float) -> FinishedEvent:
    """The result, from the ledger as it is on the disk."""
    interrupted = isinstance(stop, Interrupted)
    ledger = Ledger.read(folder / LEDGER)
    return FinishedEvent.of(ledger, folder, time=now, reason=str(stop), interrupted=interrupted)
