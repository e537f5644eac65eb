"""What of a climb is worth telling: events in, posts out. It knows no network; the time is handed in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from hillclimb.agent.notify.limits import NotifyLimits
from hillclimb.agent.notify.messages import (
    EventHistory,
    TextSanitizer,
    end_post,
    start_post,
    trouble_post,
    turn_post,
    win_post,
)
from hillclimb.agent.notify.post import PICTURE, Post
from hillclimb.agent.screen.events import (
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

_MAX_REMEMBERED_IDEAS = 64


class PostComposer:
    """One climb as its reader is told it: the start, the wins, turns and troubles now and then, and the end."""

    def __init__(self, limits: NotifyLimits, secrets: Sequence[SecretStr] = ()) -> None:
        self._limits, self._sanitizer = limits, TextSanitizer(tuple(secrets))
        self._history = EventHistory()
        self._started = False
        self._ideas: dict[int, ProposedEvent] = {}
        self._turns: list[TurnedEvent] = []
        self._troubles: list[TroubleEvent] = []
        self._next_turn_at = self._next_trouble_at = float("-inf")

    def take_event(self, event: Event, now: float) -> list[Post]:
        """One more event; `now` is on any clock that never goes back."""
        match event:
            case OpenedEvent():
                self._history.opened = self._history.opened or event
            case BaselinedEvent():
                self._history.baselined = event
                return self._start()
            case ProposedEvent():
                self._ideas = {**dict(list(self._ideas.items())[1 - _MAX_REMEMBERED_IDEAS :]), event.n: event}
                return self._start()
            case CalledEvent():
                self._history.calls += 1
                self._history.faults += event.outcome == "fault"
            case JudgedEvent():
                return self._judge(event)
            case TurnedEvent():
                return self._turn(event, now)
            case TroubleEvent():
                self._history.troubles += 1
                self._troubles.append(event)
                return self.due_posts(now)
            case FinishedEvent():
                if self._is_idle:
                    return []
                return [
                    *self.remaining_posts(),
                    end_post(event, self._history, self._sanitizer, self._picture),
                ]
        return []

    def due_posts(self, now: float) -> list[Post]:
        """Troubles that were held back, once they may be told."""
        if not self._troubles or now < self._next_trouble_at:
            return []
        self._next_trouble_at = now + self._limits.min_trouble_interval_seconds
        troubles, self._troubles = self._troubles, []
        return [*self._start(), trouble_post(troubles, self._history, self._sanitizer)]

    def next_due_at(self) -> float:
        """When `due_posts` is worth asking again."""
        return self._next_trouble_at if self._troubles else float("inf")

    def remaining_posts(self) -> list[Post]:
        """All that was held back: nothing comes after this."""
        return [] if self._is_idle else [*self.due_posts(float("inf")), *self._start()]

    @property
    def _is_idle(self) -> bool:
        """A finished run that was taken up and had nothing left to do is no news."""
        opened = self._history.opened
        return bool(opened and opened.resumed) and not self._started and not self._troubles

    def _start(self) -> list[Post]:
        """The start, once; with the baseline where that is known by then."""
        if self._started or self._history.opened is None:
            return []
        self._started = True
        return [start_post(self._history.opened, self._history.baselined, self._sanitizer)]

    def _judge(self, event: JudgedEvent) -> list[Post]:
        proposed = self._ideas.pop(event.n, None)
        self._history.judged = event
        if not event.kept:
            return []
        post = win_post(event, proposed, self._history, self._sanitizer, self._picture)
        self._history.wins.append((event, post.line))
        return [*self._start(), post]

    def _turn(self, event: TurnedEvent, now: float) -> list[Post]:
        """A turn is told where plateau signals brought it about, and not too often."""
        if not event.signals:
            return []
        self._history.turns += 1
        self._turns.append(event)
        if now < self._next_turn_at:
            return []
        self._next_turn_at = now + self._limits.min_turn_interval_seconds
        turns, self._turns = self._turns, []
        return [*self._start(), turn_post(turns, self._sanitizer)]

    @property
    def _picture(self) -> Path | None:
        opened = self._history.opened
        return Path(opened.folder) / PICTURE if opened else None


class WinPostComposer(PostComposer):
    """One candidate that somebody waits for: told only where it is kept."""

    def take_event(self, event: Event, now: float) -> list[Post]:
        return (
            super().take_event(event, now)
            if isinstance(event, JudgedEvent | ProposedEvent)
            else self._note(event)
        )

    def _note(self, event: Event) -> list[Post]:
        if isinstance(event, OpenedEvent):
            self._history.opened, self._started = event, True
        return []
