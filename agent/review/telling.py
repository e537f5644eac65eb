"""Ledger lines told as the events that a climb's own screen shows.

What the ledger does not hold, the steps of a measurement and the budgets in force, is not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.entries import (
    Baselined,
    Called,
    Entry,
    Finished,
    Judged,
    Opened,
    Proposed,
    Session,
    Settled,
    Turned,
)
from agent.events import (
    BaselinedEvent,
    CalledEvent,
    Event,
    FinishedEvent,
    JudgedEvent,
    OpenedEvent,
    ProposedEvent,
    TurnedEvent,
)
from agent.ledger import Ledger
from agent.run import LEDGER
from agent.trailers import flatten
from harness.errors import UsageError
from harness.records import Interval


class Teller:
    """Turns ledger lines into events; knows the run's state as far as they go."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.ledger = folder, Ledger(folder / LEDGER)
        self._judged = 0

    def skip(self, entries: list[Entry]) -> None:
        """Take lines in without telling them."""
        self.ledger = self._after(*entries)
        for entry in entries:
            self._count(entry)

    def tell(self, entry: Entry) -> Iterator[Event]:
        """Take one line in; the events that it stands for."""
        self.ledger = self._after(entry)
        self._count(entry)
        match entry:
            case Opened():
                yield self.summary(entry.time)
            case Session():
                if len(self.ledger.spans) > 1:
                    yield self.summary(entry.time).model_copy(update={"best": ()})
            case Baselined():
                yield to_baselined(entry)
            case Turned():
                yield to_turned(entry)
            case Called():
                yield self._called(entry)
            case Proposed():
                proposal = entry.proposal
                idea, family = flatten(proposal.idea), flatten(proposal.family)
                yield ProposedEvent(
                    time=entry.time, n=entry.n, author=proposal.author, idea=idea, family=family
                )
            case Settled():
                judged = self.ledger.candidates[-1].judged
                if judged:
                    yield self._settled(judged)
            case Finished():
                yield self.finished(entry)

    def _count(self, entry: Entry) -> None:
        """Verdicts of the session at hand."""
        if isinstance(entry, Session):
            self._judged = 0
        if isinstance(entry, Settled):
            self._judged += 1

    def summary(self, time: float) -> OpenedEvent:
        """What happened so far. The run must have been opened."""
        ledger, opened = self.ledger, self.ledger.opened
        assert opened is not None
        best = [win.judged.cumulative for win in ledger.wins if win.judged]
        return OpenedEvent(
            time=time,
            case=opened.case,
            tag=opened.tag,
            branch=self._branch,
            folder=str(self._folder),
            resumed=ledger.judged > 0,
            provenance=opened.provenance,
            candidates=ledger.judged,
            best=tuple(cumulative.estimate for cumulative in best if cumulative),
            cumulative=self._cumulative(),
        )

    def finished(self, entry: Finished) -> FinishedEvent:
        ledger = self.ledger
        again = ledger.remeasured
        fresh = again.speedup if again and again.commit == ledger.incumbent else None
        return FinishedEvent(
            time=entry.time,
            reason=flatten(entry.reason),
            interrupted=entry.interrupted,
            candidates=ledger.judged,
            wins=len(ledger.wins),
            cumulative=fresh or self._cumulative(),
            importances=entry.importances,
            tokens=ledger.tokens,
            cost=ledger.cost,
            branch=self._branch,
            folder=str(self._folder),
        )

    @property
    def _branch(self) -> str:
        return f"hillclimb/{'/'.join(self._folder.parts[-3:])}"

    def _cumulative(self) -> Interval | None:
        judged = self.ledger.wins[-1].judged if self.ledger.wins else None
        return judged.cumulative if judged else None

    def _settled(self, judged: Judged) -> JudgedEvent:
        ledger = self.ledger
        span = ledger.spans[-1] if ledger.spans else None
        elapsed = sum(span.last - span.start for span in ledger.spans)
        lasted = max(judged.time - span.start, 1e-9) if span else 0.0
        return JudgedEvent(
            time=judged.time,
            n=judged.n,
            kept=judged.kept,
            reason=judged.reason,
            detail=flatten(judged.detail),
            screened=judged.screened,
            speedup=judged.speedup,
            cumulative=judged.cumulative,
            commit=judged.commit,
            candidates=ledger.judged,
            wins=len(ledger.wins),
            elapsed=elapsed,
            per_hour=3600 * self._judged / lasted if lasted else 0.0,
        )

    def _called(self, entry: Called) -> CalledEvent:
        return CalledEvent(
            time=entry.time,
            k=entry.k,
            outcome=entry.outcome,
            fault=entry.fault,
            detail=flatten(entry.detail),
            idea=flatten(entry.idea),
            seconds=entry.seconds,
            tokens=entry.usage.total,
            cost=entry.cost,
            run_tokens=self.ledger.tokens,
            run_cost=self.ledger.cost,
        )

    def _after(self, *entries: Entry) -> Ledger:
        try:
            return self.ledger.supposing(*entries)
        except ValueError as error:
            raise UsageError(
                f"{self._folder / LEDGER}: the lines do not follow one another ({error})"
            ) from None


def to_baselined(entry: Baselined) -> BaselinedEvent:
    return BaselinedEvent(
        time=entry.time,
        gate=entry.gate,
        seconds_per_call=entry.seconds_per_call,
        pair_sd=entry.pair_sd,
        noise=entry.noise,
    )


def to_turned(entry: Turned) -> TurnedEvent:
    return TurnedEvent(
        time=entry.time,
        phase=entry.phase,
        family=flatten(entry.family),
        reason=flatten(entry.reason),
        signals=entry.signals,
    )
