"""The climb: propose, build, judge, record, again, until a budget, the patience or the user ends it.

The ledger is the only state. Every session begins by reading it and mending what a crash may have left between
an intent and its effect, so resuming, starting, and coming back from a full disk are one path.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from typing import NoReturn

from hillclimb.agent.climb.disk_retry import retry_after_disk_errors
from hillclimb.agent.climb.ending import (
    end_run,
    finish_last_session,
    finished_event,
    record_end,
    report_end,
)
from hillclimb.agent.climb.opening import OpenSession, SessionOpener
from hillclimb.agent.climb.proposing import cached_factory, next_candidate, proposer_context, stop_if_due
from hillclimb.agent.climb.recording import record_outcome, record_posts
from hillclimb.agent.climb.reporter import SessionReporter, progress_watch
from hillclimb.agent.climb.request import ClimbRequest, MakeJudge, MakeProposer, Tools
from hillclimb.agent.climb.supervision import JudgeSupervisor
from hillclimb.agent.climb.try_candidate import try_candidate
from hillclimb.agent.git.snapshot import case_name
from hillclimb.agent.machine.interrupts import Interrupts
from hillclimb.agent.machine.timing_device import require_timing_device
from hillclimb.agent.proposer import Proposer
from hillclimb.agent.record.run import LEDGER, choose_tag, open_run, run_folder
from hillclimb.agent.record.views import Views
from hillclimb.agent.screen.events import FinishedEvent
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import (
    BudgetSpent,
    HillclimbError,
    Interrupted,
    Plateau,
    Stop,
    StorageError,
    TargetReached,
)


def climb(
    request: ClimbRequest, make_judge: MakeJudge, make_proposer: MakeProposer, tools: Tools
) -> FinishedEvent:
    """Climb until something ends it; takes a run up by itself where it was left.

    Raises UsageError for what a person must mend, MachineError where the machine keeps failing. A disk that
    refuses writes is waited for.
    """
    repository = tools.open_repository(request.case)
    case = case_name(repository, request.case)
    tag = choose_tag(repository, case, request.tag, tools.clock)
    folder = run_folder(repository, case, tag)
    if not (folder / LEDGER).exists():
        asked = Case(request.case)  # one that cannot be climbed leaves no run behind
        require_timing_device(asked)
        asked.first_to_sweep()
    make = cached_factory(make_proposer)

    def session() -> FinishedEvent:
        with open_run(repository, case, tag, tools.disk, tools.clock) as run:
            try:
                stop = climb_session(SessionOpener(request, tools, run, judge, interrupts), make)
            except HillclimbError:
                with suppress(StorageError):
                    record_posts(run, tools)
                raise
            return report_end(stop, run, tools)

    with Interrupts() as interrupts, closing(JudgeSupervisor(make_judge, tools, interrupts)) as judge:
        try:
            return retry_after_disk_errors(session, repository.root / "runs", tools, interrupts)
        except Interrupted as interrupted:
            finished = finished_event(interrupted, folder, tools.clock.now())
            tools.emit(finished)
            return finished


def climb_session(opener: SessionOpener, make_proposer: MakeProposer) -> Stop:
    """Climb to the end, whatever ends it; what is to be said about the end is in the ledger then."""
    run, tools = opener.run, opener.tools
    views = Views(run.folder, run.disk, tools.notice, tools.draw, tools.mirror)
    with ExitStack() as at_end:
        at_end.callback(opener.interrupts.clear_deadline)
        try:
            session = opener.open(progress_watch(tools))
            reporter = SessionReporter(session, views)
            reporter.report_start()
            finish_last_session(session, reporter)
            proposer = make_proposer(proposer_context(session))
            stop = climb_until_stopped(session, proposer, reporter)
            end_run(session, proposer, reporter, stop)
            return stop
        except (Interrupted, BudgetSpent) as stop:
            with suppress(StorageError):
                record_end(stop, run, views, tools.clock.now())
            return stop


def climb_until_stopped(session: OpenSession, proposer: Proposer, reporter: SessionReporter) -> Stop:
    """The Stop that the loop came to; before anything else is raised, the proposer gives up what it has begun."""
    try:
        loop(session, proposer, reporter)
    except (BudgetSpent, Plateau, TargetReached) as stop:
        return stop
    except StorageError:
        raise  # the same proposer goes on once the disk takes writes again
    except HillclimbError:
        with suppress(HillclimbError):
            proposer.finish(session.run.ledger)
        raise


def loop(session: OpenSession, proposer: Proposer, reporter: SessionReporter) -> NoReturn:
    """The loop. Raises the Stop that ends it; every line is safe to repeat after kill -9."""
    while True:
        stop_if_due(session)
        candidate = next_candidate(session, proposer, reporter)
        if candidate is None:
            continue
        session.lookahead.send_hints(proposer, candidate, session.run.ledger)
        outcome = try_candidate(session.context, session.run.ledger, candidate, reporter.watch(candidate.n))
        record_outcome(session, candidate, outcome, reporter)
