"""How a session ends: the last win is measured against the first commit, and the reason is written down and told."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hillclimb.agent.climb.opening import OpenSession
from hillclimb.agent.climb.proposing import profile_incumbent
from hillclimb.agent.climb.recording import record_posts
from hillclimb.agent.climb.reporter import SessionReporter
from hillclimb.agent.climb.request import Tools
from hillclimb.agent.climb.timekeeper import is_remeasurement_due, remeasurement_seconds
from hillclimb.agent.proposer import Proposer, why_no_importances
from hillclimb.agent.record.entries import FinishedEntry, RemeasuredEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.run import LEDGER, Run
from hillclimb.agent.record.views import Views
from hillclimb.agent.screen.durations import describe_span
from hillclimb.agent.screen.events import FinishedEvent
from hillclimb.harness.errors import BudgetSpent, Interrupted, MachineError, Stop, StorageError


def end_run(session: OpenSession, proposer: Proposer, reporter: SessionReporter, stop: Stop) -> None:
    """All that is due when a climb comes to its end by itself."""
    run = session.run
    proposer.finish(run.ledger)
    try:
        _remeasure(session, reporter)
        profile_incumbent(session, reporter)
    except BudgetSpent as overrun:
        session.tools.notice(f"the run is closed without its last measurements: {overrun}")
    importances = proposer.importances(run.ledger)
    missing = "" if importances else why_no_importances(proposer, run.ledger)
    record_end(stop, run, reporter.views, session.tools.clock.now(), importances, missing)
    reporter.views.mirror()
    session.lookahead.end()
    reporter.remove_unneeded_trees()


def finish_last_session(session: OpenSession, reporter: SessionReporter) -> None:
    """What an earlier session that came to its end had no time for comes before anything new."""
    last = session.run.ledger.finished
    if last and not last.interrupted:
        _remeasure(session, reporter)


def record_end(
    stop: Stop,
    run: Run,
    views: Views,
    now: float,
    importances: dict[str, float] | None = None,
    importances_missing: str = "",
) -> None:
    """Write down why the climb ended, once."""
    ledger, reason = run.ledger, str(stop)
    if ledger.opened and not (ledger.finished and ledger.finished.reason == reason):
        end = FinishedEntry(
            time=now,
            reason=reason,
            interrupted=isinstance(stop, Interrupted),
            importances=importances or {},
            importances_missing=importances_missing,
        )
        ledger.append(end)
    views.rebuild_table(ledger)
    views.draw()


def report_end(stop: Stop, run: Run, tools: Tools) -> FinishedEvent:
    """Tell whoever watches, and write down what became of the last posts while the run is still this process's."""
    finished = finished_event(stop, run.folder, tools.clock.now())
    tools.emit(finished)
    tools.notifier.close()
    with suppress(StorageError):
        record_posts(run, tools)
    return finished


def finished_event(stop: Stop, folder: Path, now: float) -> FinishedEvent:
    """The result, from the ledger as it is on the disk."""
    interrupted = isinstance(stop, Interrupted)
    ledger = Ledger.read(folder / LEDGER)
    return FinishedEvent.of(ledger, folder, time=now, reason=str(stop), interrupted=interrupted)


def _remeasure(session: OpenSession, reporter: SessionReporter) -> None:
    """First commit against last, measured: step gains are never multiplied.

    What goes wrong is said: the run is over, and is closed all the same. So it is where no time is left for it.
    """
    ledger, context = session.run.ledger, session.context
    if not is_remeasurement_due(ledger):
        return
    needed, left = remeasurement_seconds(ledger), session.timekeeper.seconds_left(ledger)
    if left < needed:
        session.tools.notice(
            f"first commit and last were not measured against each other: that takes about {describe_span(needed)}, "
            f"and {describe_span(left)} are left; it comes first when the run goes on"
        )
        return
    incumbent, watch = context.builder.side(ledger.incumbent), reporter.watch()
    try:
        measured = context.judge.ask(
            lambda judge: judge.compare(context.baseline, incumbent, "cumulative", watch)
        )
    except StorageError:
        raise
    except MachineError as error:
        session.tools.notice(f"first commit and last were not measured against each other: {error}")
        return
    session.run.write_samples("remeasured", measured.model_dump_json())
    ledger.append(
        RemeasuredEntry(
            time=session.tools.clock.now(),
            commit=ledger.incumbent,
            speedup=measured.speedup,
            seconds_per_call=measured.seconds_per_call,
        )
    )
