"""Tells whoever watches what happens in a session, and keeps views and folders up to date."""

from __future__ import annotations

from pathlib import Path

from hillclimb.agent.climb.budget import elapsed_seconds
from hillclimb.agent.climb.opening import OpenSession
from hillclimb.agent.climb.request import Tools
from hillclimb.agent.record.ledger import Candidate
from hillclimb.agent.record.views import Views
from hillclimb.agent.screen.events import JudgedEvent, ProgressEvent, ProposedEvent
from hillclimb.harness.records import Progress, Watch

MIN_DRAW_INTERVAL_SECONDS = 60.0
"""Between two drawings of progress.png, at the least: drawing loads the machine that is measuring."""


def progress_watch(tools: Tools, n: int | None = None) -> Watch:
    """Tells the steps of a measurement: of candidate `n`, or of none."""

    def watch(progress: Progress) -> None:
        tools.emit(
            ProgressEvent(
                time=tools.clock.now(),
                n=n,
                stage=progress.stage,
                done=progress.done,
                of=progress.of,
                speedup=progress.speedup,
            )
        )

    return watch


class SessionReporter:
    """One session's."""

    def __init__(self, session: OpenSession, views: Views) -> None:
        self._session, self.views = session, views
        self._last_drawn_at = -MIN_DRAW_INTERVAL_SECONDS
        self._judged = 0

    def watch(self, n: int | None = None) -> Watch:
        """As `progress_watch`."""
        return progress_watch(self._session.tools, n)

    def report_start(self) -> None:
        """The views are made whole, and a verdict that was carried out late is told."""
        session = self._session
        self.views.rebuild_table(session.run.ledger)
        if session.recovered:
            self.report_proposed(session.recovered)
            self._emit_judged(session.recovered)

    def report_proposed(self, candidate: Candidate) -> None:
        """A candidate is about to be tried."""
        tools = self._session.tools
        tools.emit(ProposedEvent.of(candidate.n, candidate.proposal, tools.clock.now()))

    def report_verdict(self, candidate: Candidate) -> None:
        """A candidate's verdict is in the ledger and carried out."""
        self._judged += 1
        self.views.update(self._session.run.ledger, candidate)
        self._emit_judged(candidate)

    def remove_unneeded_trees(self) -> None:
        """Only folders of trees that are still needed stay."""
        session = self._session
        incumbent = session.context.builder.side(session.run.ledger.incumbent)
        needed = (session.case.folder, Path(session.context.baseline.tree), Path(incumbent.tree))
        session.run.trees.keep_only([*needed, *session.lookahead.folders_in_use])

    def _emit_judged(self, candidate: Candidate) -> None:
        session, judged = self._session, candidate.judged
        ledger, now = session.run.ledger, session.tools.clock.now()
        self.remove_unneeded_trees()
        if judged is None:
            return
        if judged.kept and now - self._last_drawn_at >= MIN_DRAW_INTERVAL_SECONDS:
            self._last_drawn_at = now
            self.views.draw()
        session.tools.emit(
            JudgedEvent.of(
                judged,
                ledger,
                time=now,
                elapsed=elapsed_seconds(ledger, now),
                per_hour=3600 * self._judged / max(now - session.started_at, 1e-9),
                left=session.limits.remaining(ledger, now),
            )
        )
