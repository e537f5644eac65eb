"""Ledger lines told as the events that a climb's own screen shows.

What the ledger does not hold, the steps of a measurement and the budgets in force, is not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from agent.budget import elapsed
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

Told = TypeVar("Told", TurnedEvent, CalledEvent, ProposedEvent, JudgedEvent)


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
                yield BaselinedEvent.of(entry)
            case Turned():
                yield flat_turn(entry)
            case Called():
                yield _flat(CalledEvent.of(entry, self.ledger), "detail", "idea")
            case Proposed():
                yield _flat(ProposedEvent.of(entry.n, entry.proposal, entry.time), "idea", "family")
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
        return OpenedEvent.of(ledger, self._folder, time=time, provenance=opened.provenance)

    def finished(self, entry: Finished) -> FinishedEvent:
        return FinishedEvent.of(
            self.ledger,
            self._folder,
            time=entry.time,
            reason=flatten(entry.reason),
            interrupted=entry.interrupted,
        )

    def _settled(self, judged: Judged) -> JudgedEvent:
        ledger = self.ledger
        span = ledger.spans[-1] if ledger.spans else None
        lasted = max(judged.time - span.start, 1e-9) if span else 0.0
        told = JudgedEvent.of(
            judged,
            ledger,
            time=judged.time,
            elapsed=elapsed(ledger, span.last) if span else 0.0,
            per_hour=3600 * self._judged / lasted if lasted else 0.0,
        )
        return _flat(told, "detail")

    def _after(self, *entries: Entry) -> Ledger:
        try:
            return self.ledger.supposing(*entries)
        except ValueError as error:
            raise UsageError(
                f"{self._folder / LEDGER}: the lines do not follow one another ({error})"
            ) from None


def flat_turn(entry: Turned) -> TurnedEvent:
    return _flat(TurnedEvent.of(entry), "family", "reason")


def _flat(event: Told, *names: str) -> Told:
    """The event with what others wrote in it on one line each."""
    return event.model_copy(update={name: flatten(getattr(event, name)) for name in names})
