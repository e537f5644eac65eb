"""Ledger lines told as the events that a climb's own screen shows.

What the ledger does not hold, the steps of a measurement, is not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from hillclimb.agent.climb.budget import BudgetLimits, elapsed_seconds
from hillclimb.agent.record.entries import (
    BaselinedEntry,
    CalledEntry,
    Entry,
    FinishedEntry,
    JudgedEntry,
    OpenedEntry,
    ProposedEntry,
    SessionEntry,
    SettledEntry,
    TurnedEntry,
)
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.run import LEDGER
from hillclimb.agent.record.trailers import to_one_line
from hillclimb.agent.screen.events import (
    BaselinedEvent,
    CalledEvent,
    Event,
    FinishedEvent,
    JudgedEvent,
    OpenedEvent,
    ProposedEvent,
    RemainingBudget,
    TurnedEvent,
)
from hillclimb.harness.errors import UsageError

EventT = TypeVar("EventT", TurnedEvent, CalledEvent, ProposedEvent, JudgedEvent)


class EventConverter:
    """Turns ledger lines into events; knows the run's state as far as they go."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.ledger = folder, Ledger(folder / LEDGER)
        self._judged = 0

    def skip(self, entries: list[Entry]) -> None:
        """Take lines in without telling them."""
        self.ledger = self._after(*entries)
        for entry in entries:
            self._count(entry)

    def convert(self, entry: Entry) -> Iterator[Event]:
        """Take one line in; the events that it stands for."""
        self.ledger = self._after(entry)
        self._count(entry)
        match entry:
            case OpenedEntry():
                yield self.summary(entry.time)
            case SessionEntry():
                if len(self.ledger.spans) > 1:
                    yield self.summary(entry.time).model_copy(update={"best": ()})
            case BaselinedEntry():
                yield BaselinedEvent.of(entry)
            case TurnedEntry():
                yield turned_event(entry)
            case CalledEntry():
                yield _flat(CalledEvent.of(entry, self.ledger), "detail", "idea")
            case ProposedEntry():
                yield _flat(ProposedEvent.of(entry.n, entry.proposal, entry.time), "idea", "family")
            case SettledEntry():
                judged = self.ledger.candidates[-1].judged
                if judged:
                    yield self._settled(judged)
            case FinishedEntry():
                yield self.finished(entry)

    def _count(self, entry: Entry) -> None:
        """Verdicts of the session at hand."""
        if isinstance(entry, SessionEntry):
            self._judged = 0
        if isinstance(entry, SettledEntry):
            self._judged += 1

    def summary(self, time: float) -> OpenedEvent:
        """What happened so far. The run must have been opened."""
        ledger, opened = self.ledger, self.ledger.opened
        assert opened is not None
        event = OpenedEvent.of(ledger, self._folder, time=time, provenance=opened.provenance)
        return event.model_copy(update={"budgets": ledger.budgets, "left": self._left(time)})

    def _left(self, time: float) -> RemainingBudget | None:
        """Of the budgets in force, as the last session's line has them."""
        ledger = self.ledger
        return BudgetLimits.of(ledger.budgets).remaining(ledger, time) if ledger.budgets else None

    def finished(self, entry: FinishedEntry) -> FinishedEvent:
        return FinishedEvent.of(
            self.ledger,
            self._folder,
            time=entry.time,
            reason=to_one_line(entry.reason),
            interrupted=entry.interrupted,
        )

    def _settled(self, judged: JudgedEntry) -> JudgedEvent:
        ledger = self.ledger
        span = ledger.spans[-1] if ledger.spans else None
        lasted = max(judged.time - span.start, 1e-9) if span else 0.0
        told = JudgedEvent.of(
            judged,
            ledger,
            time=judged.time,
            elapsed=elapsed_seconds(ledger, span.last) if span else 0.0,
            per_hour=3600 * self._judged / lasted if lasted else 0.0,
            left=self._left(span.last) if span else None,
        )
        return _flat(told, "detail")

    def _after(self, *entries: Entry) -> Ledger:
        try:
            return self.ledger.with_entries(*entries)
        except ValueError as error:
            raise UsageError(
                f"{self._folder / LEDGER}: the lines do not follow one another ({error})"
            ) from None


def turned_event(entry: TurnedEntry) -> TurnedEvent:
    return _flat(TurnedEvent.of(entry), "family", "reason")


def _flat(event: EventT, *names: str) -> EventT:
    """The event with what others wrote in it on one line each."""
    return event.model_copy(update={name: to_one_line(getattr(event, name)) for name in names})
