"""Writes down what became of a candidate, in an order in which a crash at any point loses nothing."""

from __future__ import annotations

from hillclimb.agent.climb.opening import OpenSession, require_same_rules
from hillclimb.agent.climb.reporter import SessionReporter
from hillclimb.agent.climb.request import Tools
from hillclimb.agent.climb.try_candidate import TrialOutcome, to_samples, to_verdict
from hillclimb.agent.record.branch import COMMITTER, author_signature, signature
from hillclimb.agent.record.entries import JudgedEntry, NotifiedEntry, SettledEntry
from hillclimb.agent.record.ledger import Candidate
from hillclimb.agent.record.run import Run
from hillclimb.agent.record.trailers import VerdictRecord, write_message
from hillclimb.agent.rhythm.notes_files import refresh
from hillclimb.harness.records import Provenance


def record_outcome(
    session: OpenSession, candidate: Candidate, outcome: TrialOutcome, reporter: SessionReporter
) -> None:
    """Samples, commit, intent, ref, done; then whoever watches is told."""
    run, n = session.run, candidate.n
    run.write_samples(str(n), to_samples(outcome, n).model_dump_json())
    verdict = to_verdict(outcome, n, session.tools.clock.now(), run.ledger.incumbent)
    run.ledger.append(_committed(session, candidate, verdict))
    run.branch.apply_verdict(run.ledger.candidates[-1])
    run.ledger.append(SettledEntry(n=n, webhook=session.tools.notifier.webhook(n, verdict.kept)))
    reporter.report_verdict(run.ledger.candidates[-1])


def record_posts(run: Run, tools: Tools) -> None:
    """Write down what became of posts that went out meanwhile."""
    for n, webhook in tools.notifier.outcomes():
        run.ledger.append(NotifiedEntry(n=n, time=tools.clock.now(), webhook=webhook))


def _committed(session: OpenSession, candidate: Candidate, verdict: JudgedEntry) -> JudgedEntry:
    """The verdict with the commit that states it, made but not yet pointed at."""
    if verdict.tree is None:
        return verdict
    run = session.run
    record = VerdictRecord(
        run=run.name,
        opened=session.opened,
        settings=session.case.settings,
        provenance=_provenance(session),
        proposal=candidate.proposal,
        call=run.ledger.call_of(candidate),
        judged=verdict,
        confirming=candidate.confirming or run.ledger.candidates[-1].confirming,
    )
    author = author_signature(candidate.proposal, verdict.time)
    by = signature(COMMITTER, verdict.time)
    tree = _annotated(session, verdict.tree, verdict) if verdict.kept else verdict.tree
    commit = run.repository.commit(tree, [verdict.parent], write_message(record), author, by)
    ref = run.branch.ref if verdict.kept else run.branch.rejected_ref(verdict.n)
    return verdict.model_copy(update={"commit": commit, "ref": ref})


def _annotated(session: OpenSession, tree: str, win: JudgedEntry) -> str:
    """A win's tree with the candidate set and the notes in docs/ brought up to it."""
    after = session.run.ledger.with_entries(win, SettledEntry(n=win.n))
    builder = session.context.builder
    return builder.annotate(tree, refresh(builder.texts(tree), after))


def _provenance(session: OpenSession) -> Provenance:
    """Of the judge that decided, which may be another process than the one that opened the run, and be gone."""
    provenance = session.context.judge.answered_by or session.opened.provenance
    require_same_rules(session.opened, provenance)
    return provenance
