"""Which candidate comes next: one that an earlier session left, else the proposer's next idea."""

from __future__ import annotations

from hillclimb.agent.climb.opening import OpenSession
from hillclimb.agent.climb.recording import record_posts
from hillclimb.agent.climb.reporter import SessionReporter
from hillclimb.agent.climb.request import MakeProposer
from hillclimb.agent.climb.timekeeper import profile_seconds
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import NotReady, Proposer, ProposerContext, reads_profile
from hillclimb.agent.record.entries import ProfiledEntry, ProposedEntry
from hillclimb.agent.record.ledger import Candidate
from hillclimb.harness.errors import MachineError, Plateau, StorageError
from hillclimb.harness.records import Profile


def cached_factory(make: MakeProposer) -> MakeProposer:
    """A proposer outlives the sessions that a refusing disk ends, and what it has under way with it."""
    made: list[Proposer] = []

    def once(background: ProposerContext) -> Proposer:
        if not made:
            made.append(make(background))
        return made[0]

    return once


def proposer_context(session: OpenSession) -> ProposerContext:
    """What the proposer of this session may know and touch besides the ledger."""
    return ProposerContext(
        case=session.case,
        seed=session.opened.seed,
        folder=session.run.folder,
        files=session.context.builder.texts,
        disk=session.run.disk,
        clock=session.tools.clock,
        emit=session.tools.emit,
        interruptible_wait=session.interrupts.interruptible,
        may_spend=session.limits.may_spend,
        lookahead_count=session.context.lookahead_count,
    )


def stop_if_due(session: OpenSession) -> None:
    """Raises the Stop that is due: Ctrl-C, a budget, the target, the patience, or no time for another candidate.

    A candidate that was proposed counts already, so it is only asked whether there is time for it.
    """
    ledger = session.run.ledger
    session.interrupts.check()
    if not ledger.pending:
        session.limits.check(ledger, session.tools.clock.now())
    session.timekeeper.require_screening(ledger)


def next_candidate(session: OpenSession, proposer: Proposer, reporter: SessionReporter) -> Candidate | None:
    """The candidate without a verdict, else a new one; None where nobody has an idea yet, after a while.

    Raises Plateau where nobody will have one.
    """
    ledger = session.run.ledger
    if not ledger.pending:
        proposal = _ask(session, proposer, reporter)
        if not isinstance(proposal, Proposal):
            with session.interrupts.interruptible():
                session.tools.clock.sleep(proposal.seconds)
            return None
        n = len(ledger.candidates) + 1
        ledger.append(ProposedEntry(n=n, time=session.tools.clock.now(), proposal=proposal))
    reporter.report_proposed(ledger.candidates[-1])
    return ledger.candidates[-1]


def _ask(session: OpenSession, proposer: Proposer, reporter: SessionReporter) -> Proposal | NotReady:
    ledger = session.run.ledger
    if not ledger.profiles or reads_profile(proposer, ledger):
        profile_incumbent(session, reporter)
    record_posts(session.run, session.tools)
    proposal = proposer.propose(ledger)
    if proposal is None:
        raise Plateau("the proposer has no ideas left")
    return proposal


def profile_incumbent(session: OpenSession, reporter: SessionReporter) -> None:
    """Profile the incumbent, once: for proposers and readers, and decides nothing.

    The baseline always is, and the last win of a run that comes to its end; others where a proposer reads it.
    What goes wrong is said and recorded, and the climb goes on without. Where no time is left for it, it is left out.
    """
    ledger = session.run.ledger
    if ledger.is_profiled or not session.timekeeper.has_time_for(ledger, profile_seconds(ledger)):
        return
    incumbent, watch = session.context.builder.side(ledger.incumbent), reporter.watch()
    try:
        profile = session.context.judge.ask(lambda judge: judge.profile(incumbent, watch))
    except StorageError:
        raise
    except MachineError as error:
        session.tools.notice(f"the incumbent was not profiled: {error}")
        profile = Profile(problems=(), detail=f"not profiled: {error}")
    ledger.append(ProfiledEntry(time=session.tools.clock.now(), commit=ledger.incumbent, profile=profile))
