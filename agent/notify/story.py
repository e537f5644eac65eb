"""What of a climb is worth telling: events in, posts out. It knows no network; the time is handed in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from agent.events import (
    BaselinedEvent,
    CalledEvent,
    Event,
    FinishedEvent,
    JudgedEvent,
    OpenedEvent,
    ProposedEvent,
    TroubleEvent,
    TurnedEvent,
)
from agent.notify.pace import Pace
from agent.notify.post import PICTURE, Post
from agent.notify.telling import Seen, Words, tell_end, tell_start, tell_trouble, tell_turn, tell_win

_IDEAS = 64


class Story:
    """One climb as its reader is told it: the start, the wins, turns and troubles now and then, and the end."""

    def __init__(self, pace: Pace, secrets: Sequence[SecretStr] = ()) -> None:
        self._pace, self._words = pace, Words(tuple(secrets))
        self._seen = Seen()
        self._started = False
        self._ideas: dict[int, ProposedEvent] = {}
        self._turns: list[TurnedEvent] = []
        self._troubles: list[TroubleEvent] = []
        self._next_turn = self._next_trouble = float("-inf")

    def take(self, event: Event, now: float) -> list[Post]:
        """One more event; `now` is on any clock that never goes back."""
        match event:
            case OpenedEvent():
                self._seen.opened = self._seen.opened or event
            case BaselinedEvent():
                self._seen.baselined = event
                return self._start()
            case ProposedEvent():
                self._ideas = {**dict(list(self._ideas.items())[1 - _IDEAS :]), event.n: event}
                return self._start()
            case CalledEvent():
                self._seen.calls += 1
                self._seen.faults += event.outcome == "fault"
            case JudgedEvent():
                return self._judge(event)
            case TurnedEvent():
                return self._turn(event, now)
            case TroubleEvent():
                self._seen.troubles += 1
                self._troubles.append(event)
                return self.ripe(now)
            case FinishedEvent():
                if self._is_idle:
                    return []
                return [*self.rest(), tell_end(event, self._seen, self._words, self._picture)]
        return []

    def ripe(self, now: float) -> list[Post]:
        """Troubles that were held back, once they may be told."""
        if not self._troubles or now < self._next_trouble:
            return []
        self._next_trouble = now + self._pace.between_troubles
        troubles, self._troubles = self._troubles, []
        return [*self._start(), tell_trouble(troubles, self._seen, self._words)]

    def next_ripe(self) -> float:
        """When `ripe` is worth asking again."""
        return self._next_trouble if self._troubles else float("inf")

    def rest(self) -> list[Post]:
        """All that was held back: nothing comes after this."""
        return [] if self._is_idle else [*self.ripe(float("inf")), *self._start()]

    @property
    def _is_idle(self) -> bool:
        """A finished run that was taken up and had nothing left to do is no news."""
        opened = self._seen.opened
        return bool(opened and opened.resumed) and not self._started and not self._troubles

    def _start(self) -> list[Post]:
        """The start, once; with the baseline where that is known by then."""
        if self._started or self._seen.opened is None:
            return []
        self._started = True
        return [tell_start(self._seen.opened, self._seen.baselined, self._words)]

    def _judge(self, event: JudgedEvent) -> list[Post]:
        proposed = self._ideas.pop(event.n, None)
        self._seen.judged = event
        if not event.kept:
            return []
        post = tell_win(event, proposed, self._seen, self._words, self._picture)
        self._seen.wins.append((event, post.line))
        return [*self._start(), post]

    def _turn(self, event: TurnedEvent, now: float) -> list[Post]:
        """A turn is told where plateau signals brought it about, and not too often."""
        if not event.signals:
            return []
        self._seen.turns += 1
        self._turns.append(event)
        if now < self._next_turn:
            return []
        self._next_turn = now + self._pace.between_turns
        turns, self._turns = self._turns, []
        return [*self._start(), tell_turn(turns, self._words)]

    @property
    def _picture(self) -> Path | None:
        opened = self._seen.opened
        return Path(opened.folder) / PICTURE if opened else None


class Wins(Story):
    """One candidate that somebody waits for: told only where it is kept."""

    def take(self, event: Event, now: float) -> list[Post]:
        return (
            super().take(event, now) if isinstance(event, JudgedEvent | ProposedEvent) else self._note(event)
        )

    def _note(self, event: Event) -> list[Post]:
        if isinstance(event, OpenedEvent):
            self._seen.opened, self._started = event, True
        return []
