"""Which candidate comes next: one that an earlier session left, else the proposer's next idea."""

from __future__ import annotations

from hillclimb.agent.climb.opening import OpenSession
from hillclimb.agent.climb.recording import record_posts
from hillclimb.agent.climb.reporter import SessionReporter
from hillclimb.agent.climb.request import MakeProposer
from hillclimb.agent.climb.timekeeper import profile_seconds
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import Proposer, ProposerContext, reads_profile
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


def next_candidate(session: OpenSession, proposer: Proposer, reporter: SessionReporter) -> Candidate:
    """The candidate without a verdict, else a new one. Raises the Stop that comes first."""
    ledger = session.run.ledger
    candidate = ledger.pending
    if candidate:
        session.timekeeper.require_screening(ledger)
    else:
        proposal = _await_proposal(session, proposer, reporter)
        n = len(ledger.candidates) + 1
        ledger.append(ProposedEntry(n=n, time=session.tools.clock.now(), proposal=proposal))
        candidate = ledger.candidates[-1]
    reporter.report_proposed(candidate)
    return candidate


def _await_proposal(session: OpenSession, proposer: Proposer, reporter: SessionReporter) -> Proposal:
    """The next proposal, however long it takes."""
    ledger, clock = session.run.ledger, session.tools.clock
    while True:
        session.interrupts.check()
        session.limits.check(ledger, clock.now())
        session.timekeeper.require_screening(ledger)
        if not ledger.profiles or reads_profile(proposer, ledger):
            profile_incumbent(session, reporter)
        record_posts(session.run, session.tools)
        proposal = proposer.propose(ledger)
        if proposal is None:
            raise Plateau("the proposer has no ideas left")
        if isinstance(proposal, Proposal):
            return proposal
        with session.interrupts.interruptible():
            clock.sleep(proposal.seconds)


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
